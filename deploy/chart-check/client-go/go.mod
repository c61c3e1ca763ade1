// What helm's engine needs of client-go to compile. A chart is checked without a cluster, and the real one takes longer
// to build than everything else together.
module k8s.io/client-go

go 1.24.0

require (
	k8s.io/api v0.33.3
	k8s.io/apimachinery v0.33.3
)
