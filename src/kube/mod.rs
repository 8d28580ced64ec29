//! What the cluster reads: Secrets and other manifests.
