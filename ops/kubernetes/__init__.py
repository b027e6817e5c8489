"""Plain manifests for Kubernetes, drawn from the Helm chart."""
