//! What is known of a store before it is asked: where it answers, and by which rules.

use std::path::PathBuf;
use web::Origin;

/// How a bucket stands in a URL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Addressing {
    /// `https://HOST/BUCKET/KEY`.
    Path,
    /// `https://BUCKET.HOST/KEY`.
    Host,
}

/// A table `[stores.NAME]`, or what stands for one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StoreConfig {
    /// `https://HOST[:PORT]`; without one it is Amazon's, of the region.
    pub endpoint: Option<String>,
    pub region: Option<String>,
    pub addressing: Option<Addressing>,
    /// Requests may go out unencrypted to other hosts.
    pub allow_clear: bool,
    pub ca_file: Option<PathBuf>,
    /// The file that has the keys, in the form of the AWS tools' `credentials`.
    pub credentials_file: Option<PathBuf>,
    /// The section of that file, or of the AWS tools' own, that has the keys.
    pub aws_profile: Option<String>,
    /// Requests are not signed.
    pub anonymous: bool,
    /// What the store copies by one request, if not 5 GiB.
    pub copy_bytes_max: Option<u64>,
}

impl StoreConfig {
    pub fn region(&self) -> String {
        let known = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let region = self.region.clone().or_else(|| known("AWS_REGION")).or_else(|| known("AWS_DEFAULT_REGION"));
        region.unwrap_or_else(|| "us-east-1".to_owned())
    }

    /// The store of `s3://`, which no table describes: Amazon's, or the one that the variables of the AWS tools name.
    pub fn of_environment(variable: &dyn Fn(&str) -> Option<String>) -> StoreConfig {
        let named = |name| variable(name).filter(|value| !value.is_empty());
        let endpoint = named("AWS_ENDPOINT_URL_S3").or_else(|| named("AWS_ENDPOINT_URL"));
        StoreConfig { endpoint, ..StoreConfig::default() }
    }

    /// Where requests for a bucket of a region go, and whether it is named in the path.
    pub fn origin(&self, bucket: &str, region: &str) -> Result<(Origin, bool), String> {
        let usual = if self.endpoint.is_some() { Addressing::Path } else { Addressing::Host };
        let url = self.endpoint.clone().unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let origin = Origin::parse(&url).map_err(|e| e.text)?;
        if !origin.is_tls && !origin.is_loopback() && !self.allow_clear {
            return Err(format!("{url} is not encrypted"));
        }
        // A dot in a bucket's name is none that a certificate covers.
        let addressing = self.addressing.unwrap_or(if bucket.contains('.') { Addressing::Path } else { usual });
        Ok(match addressing {
            Addressing::Path => (origin, true),
            Addressing::Host => (origin.with_host(format!("{bucket}.{}", origin.host)), false),
        })
    }
}

/// Whether a text can be the name of a bucket: so that it can be no other host and no path.
pub fn is_bucket(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    (1..=255).contains(&name.len())
        && name.chars().all(is_plain)
        && !name.starts_with(['.', '-'])
        && !name.contains("..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_in_the_path_of_a_named_endpoint_and_in_the_host_where_that_is_asked_for() {
        let config = |endpoint: &str| StoreConfig { endpoint: Some(endpoint.to_owned()), ..StoreConfig::default() };
        let (origin, is_in_path) = config("http://127.0.0.1:7070").origin("b", "us-east-1").unwrap();
        assert_eq!((origin.authority(), is_in_path), ("127.0.0.1:7070".to_owned(), true));
        let by_host = StoreConfig { addressing: Some(Addressing::Host), ..config("https://s3.example.org") };
        let (origin, is_in_path) = by_host.origin("b", "us-east-1").unwrap();
        assert_eq!((origin.authority(), is_in_path), ("b.s3.example.org".to_owned(), false));
    }

    #[test]
    fn the_variables_name_the_store_that_no_table_describes() {
        let of = |set: &'static [(&str, &str)]| {
            let value = |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            StoreConfig::of_environment(&value).endpoint
        };
        let both = &[("AWS_ENDPOINT_URL", "https://any"), ("AWS_ENDPOINT_URL_S3", "https://s3")];
        assert_eq!((of(both).as_deref(), of(&both[..1]).as_deref()), (Some("https://s3"), Some("https://any")));
        assert_eq!((of(&[("AWS_ENDPOINT_URL_S3", "")]), of(&[])), (None, None));
    }

    #[test]
    fn another_host_without_encryption_needs_a_word() {
        let config = |allow_clear| StoreConfig {
            endpoint: Some("http://store.example.org".to_owned()),
            allow_clear,
            ..StoreConfig::default()
        };
        assert!(config(false).origin("b", "us-east-1").unwrap_err().contains("not encrypted"));
        assert!(config(true).origin("b", "us-east-1").is_ok());
    }

    #[test]
    fn a_bucket_is_no_path_and_no_other_host() {
        assert!(is_bucket("a-b.c_D9"));
        for name in ["", ".a", "a..b", "a/b", "a@b", "a:1", "-a", "b\n"] {
            assert!(!is_bucket(name), "{name:?}");
        }
    }
}
