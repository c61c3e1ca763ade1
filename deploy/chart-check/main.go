// Chart-check renders a chart with the packages of helm itself, and decodes every object strictly into the types of
// Kubernetes and of the Prometheus operator: a field that they do not have is an error. It prints the objects as one
// JSON list. Files of values are merged, a later one over those before it.
//
// It does not lint: what helm's linter would find here, Validate, the schema of the values and the decoding find too,
// and it brings the servers of Kubernetes. The clients of a cluster, which helm's engine can ask, are replaced in go.mod.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: chart-check CHART [VALUES.yaml ...]")
		os.Exit(2)
	}
	objects, err := check(os.Args[1], os.Args[2:])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(objects)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "chart-check: %v\n", err)
		os.Exit(1)
	}
}

func check(folder string, files []string) ([]any, error) {
	values := chartutil.Values{}
	for _, file := range files {
		read, err := chartutil.ReadValuesFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		// What comes first wins in CoalesceTables.
		values = chartutil.CoalesceTables(read, values)
	}
	rendered, err := render(folder, values)
	if err != nil {
		return nil, err
	}
	return decode(rendered)
}

func render(folder string, values chartutil.Values) (map[string]string, error) {
	chart, err := loader.Load(folder)
	if err != nil {
		return nil, err
	}
	if err := chart.Validate(); err != nil {
		return nil, err
	}
	options := chartutil.ReleaseOptions{Name: "trips", Namespace: "here", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, values, options, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Engine{Strict: true}.Render(chart, all)
}

func decode(rendered map[string]string) ([]any, error) {
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), monitoring.AddToScheme(known)); err != nil {
		return nil, err
	}
	decoder := serializer.NewCodecFactory(known, serializer.EnableStrict).UniversalDeserializer()
	var names []string
	for name := range rendered {
		names = append(names, name)
	}
	slices.Sort(names)
	objects := []any{}
	for _, name := range names {
		if strings.HasSuffix(name, "NOTES.txt") {
			continue
		}
		manifests := releaseutil.SplitManifests(rendered[name])
		for _, manifest := range manifests {
			var object any
			if err := yaml.Unmarshal([]byte(manifest), &object); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if object == nil { // nothing but comments
				continue
			}
			if _, _, err := decoder.Decode([]byte(manifest), nil, nil); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			objects = append(objects, object)
		}
	}
	return objects, nil
}
