//! Tables `[stores.NAME]`: object stores by the names that `s3+NAME://` calls them, WebDAV and GridFTP servers by their addresses.
//!
//! Invariant: every key is known and every value is of its kind, or the whole file is refused. No key holds a secret.
//! Not here: what a store does with its table (`object`, `dav`, `foreign`).

use toml::de::{DeTable, DeValue};

/// The keys there are, for hints.
pub const KEYS: &[&str] = &[
    "kind",
    "endpoint",
    "region",
    "addressing",
    "allow_clear",
    "ca_file",
    "credentials_file",
    "aws_profile",
    "anonymous",
    "token_file",
    "redirect_hosts",
];

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum StoreKind {
    #[default]
    S3,
    Dav,
    /// FTP servers too.
    GridFtp,
}

/// A table, as it stands in the file.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct StoreTable {
    pub kind: StoreKind,
    pub endpoint: Option<String>,
    pub region: Option<String>,
    /// Buckets stand in the host's name, and not in the path.
    pub is_by_host: Option<bool>,
    pub allow_clear: bool,
    pub ca_file: Option<String>,
    pub credentials_file: Option<String>,
    pub aws_profile: Option<String>,
    pub is_anonymous: bool,
    pub token_file: Option<String>,
    pub redirect_hosts: Vec<String>,
}

const KINDS: &str = "write kind = \"s3\", kind = \"dav\" or kind = \"gridftp\"";

/// What is wrong with a table: where in the text, what, and what to do.
pub struct Wrong {
    pub at: usize,
    pub what: String,
    pub hint: String,
}

/// Whether a text can stand behind `s3+`.
pub fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    !name.is_empty() && name.len() <= 64 && name.chars().all(is_plain)
}

pub fn read(table: &DeTable<'_>, at: usize) -> Result<StoreTable, Wrong> {
    let mut read = StoreTable::default();
    let mut has_kind = false;
    for (key, value) in table {
        let name = key.get_ref();
        let wrong = |what: String, hint: &str| Wrong { at: key.span().start, what, hint: hint.to_owned() };
        let text = || match value.get_ref() {
            DeValue::String(text) => Ok(text.to_string()),
            _ => Err(wrong(format!("{name}: not a text"), "write the value in quotes")),
        };
        let switch = || match value.get_ref() {
            DeValue::Boolean(is_on) => Ok(*is_on),
            _ => Err(wrong(format!("{name}: neither true nor false"), "write true or false, without quotes")),
        };
        match &name[..] {
            "kind" => {
                has_kind = true;
                read.kind = match &text()?[..] {
                    "s3" => StoreKind::S3,
                    "dav" => StoreKind::Dav,
                    "gridftp" => StoreKind::GridFtp,
                    other => return Err(wrong(format!("kind {other:?} is not known"), KINDS)),
                };
            }
            "endpoint" => read.endpoint = Some(text()?),
            "region" => read.region = Some(text()?),
            "addressing" => {
                read.is_by_host = Some(match &text()?[..] {
                    "host" => true,
                    "path" => false,
                    other => {
                        let what = format!("addressing {other:?} is not known");
                        return Err(wrong(what, "it is \"path\" or \"host\""));
                    }
                });
            }
            "allow_clear" => read.allow_clear = switch()?,
            "ca_file" => read.ca_file = Some(text()?),
            "credentials_file" => read.credentials_file = Some(text()?),
            "aws_profile" => read.aws_profile = Some(text()?),
            "anonymous" => read.is_anonymous = switch()?,
            "token_file" => read.token_file = Some(text()?),
            "redirect_hosts" => {
                read.redirect_hosts = texts(value.get_ref()).ok_or_else(|| {
                    wrong(format!("{name}: not a list of texts"), "write redirect_hosts = [\"HOST\", ...]")
                })?
            }
            other if other.contains("key") || other.contains("secret") || other.contains("token") => {
                let hint = "keys come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or from the AWS files";
                return Err(wrong(format!("{other}: this file holds no keys"), hint));
            }
            other => {
                let hint = format!("a store has {}", KEYS.join(", "));
                return Err(wrong(format!("unknown setting {} of a store", crate::output::shown(other)), &hint));
            }
        }
    }
    let lacks = match (has_kind, &read) {
        (false, _) => ("the store has no kind", KINDS),
        (true, StoreTable { kind: StoreKind::Dav, endpoint: None, .. }) => {
            ("a WebDAV server is known by its address", "write endpoint = \"davs://HOST:PORT\"")
        }
        (true, StoreTable { kind: StoreKind::GridFtp, endpoint: None, .. }) => {
            ("a GridFTP server is known by its address", "write endpoint = \"gsiftp://HOST:PORT\"")
        }
        _ => return Ok(read),
    };
    Err(Wrong { at, what: lacks.0.to_owned(), hint: lacks.1.to_owned() })
}

/// A list of texts.
pub fn texts(value: &DeValue<'_>) -> Option<Vec<String>> {
    let DeValue::Array(items) = value else { return None };
    let text = |item: &toml::Spanned<DeValue<'_>>| match item.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        _ => None,
    };
    items.iter().map(text).collect()
}
