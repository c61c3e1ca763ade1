// Package scheme has the types of Kubernetes that the chart makes objects of. What is of another group is refused: add
// the group here.
package scheme

import (
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

var (
	groups = runtime.NewSchemeBuilder(apps.AddToScheme, core.AddToScheme, networking.AddToScheme, policy.AddToScheme)
	// AddToScheme adds them to another scheme.
	AddToScheme = groups.AddToScheme
	// Scheme is what helm derives the versions from that it takes a cluster to know.
	Scheme = runtime.NewScheme()
)

func init() {
	if err := AddToScheme(Scheme); err != nil {
		panic(err)
	}
}
