//! The Kubernetes Secret.

use serde::ser::{Serialize, SerializeMap, Serializer};
use zeroize::Zeroizing;

use super::DnsLabel;

/// Where a Secret lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretName {
    /// Its namespace.
    pub namespace: DnsLabel,
    /// Its name.
    pub name: DnsLabel,
}

/// An Opaque Secret with its values in `stringData`: plain text, which the API server encodes.
///
/// It has no `Debug`: its values are secrets.
#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Secret<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata<'a>,
    #[serde(rename = "type")]
    kind_of_data: &'static str,
    string_data: Pairs<'a>,
}

#[derive(serde::Serialize)]
struct Metadata<'a> {
    name: &'a str,
    namespace: &'a str,
}

/// Keys and values in the order they were given.
struct Pairs<'a>(Vec<(&'a str, &'a str)>);

impl Serialize for Pairs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<'a> Secret<'a> {
    /// An Opaque Secret with these values.
    pub fn opaque(name: &'a SecretName, values: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self {
            api_version: "v1",
            kind: "Secret",
            metadata: Metadata { name: name.name.as_str(), namespace: name.namespace.as_str() },
            kind_of_data: "Opaque",
            string_data: Pairs(values.into_iter().collect()),
        }
    }
}

/// A JSON document for a file, with a newline at its end; its memory is wiped.
pub(super) fn json(value: &impl Serialize) -> serde_json::Result<Zeroizing<Vec<u8>>> {
    let mut json = Zeroizing::new(serde_json::to_vec_pretty(value)?);
    json.push(b'\n');
    Ok(json)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_secret_as_the_api_server_reads_it() {
        let name = SecretName { namespace: "ns".parse().unwrap(), name: "s".parse().unwrap() };
        let secret = Secret::opaque(&name, [("b", "\"1\n"), ("a", "<&>")]);
        assert_eq!(
            serde_json::to_string(&secret).unwrap(),
            r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"ns"},"type":"Opaque","stringData":{"b":"\"1\n","a":"<&>"}}"#
        );
    }
}
