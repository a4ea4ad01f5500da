//! The table `[cluster]`: what the hosts of an endpoint keep their records in.
//!
//! Invariant: every key is known and every value is of its kind, or the whole file is refused. No key holds a secret.
//! Not here: what comes of it (`crate::coordinator`).

use super::stores::Wrong;
use toml::de::{DeTable, DeValue};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// The first host's state directory.
    Embedded,
    /// The same, this host not being the first.
    Head,
    Etcd,
}

/// The table, as it stands in the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterTable {
    pub engine: Engine,
    pub urls: Vec<String>,
    pub user: Option<String>,
    pub password_file: Option<String>,
    pub ca_file: Option<String>,
}

const KEYS: &str = "[cluster] has engine, urls, user, password-file and ca-file";
const ENGINES: &str = "write engine = \"embedded\", \"head\" or \"etcd\"";

pub fn read(table: &DeTable<'_>, at: usize) -> Result<ClusterTable, Wrong> {
    let (mut engine, mut urls, mut user, mut password_file, mut ca_file) = (None, Vec::new(), None, None, None);
    for (key, value) in table {
        let name = key.get_ref();
        let wrong = |what: String, hint: &str| Wrong { at: key.span().start, what, hint: hint.to_owned() };
        let text = || match value.get_ref() {
            DeValue::String(text) => Ok(text.to_string()),
            _ => Err(wrong(format!("{name}: not a text"), "write the value in quotes")),
        };
        match &name[..] {
            "engine" => {
                engine = Some(match &text()?[..] {
                    "embedded" => Engine::Embedded,
                    "head" => Engine::Head,
                    "etcd" => Engine::Etcd,
                    other => return Err(wrong(format!("engine {other:?} is not known"), ENGINES)),
                });
            }
            "urls" => {
                let hint = "write urls = [\"https://HOST:2379\", ...]";
                urls = super::stores::texts(value.get_ref())
                    .filter(|urls| !urls.is_empty())
                    .ok_or_else(|| wrong("urls: not a list of texts".to_owned(), hint))?;
            }
            "user" => user = Some(text()?),
            "password-file" => password_file = Some(text()?),
            "ca-file" => ca_file = Some(text()?),
            "password" => {
                let hint = "write the password to a file of mode 0600, and its name as password-file";
                return Err(wrong("password: this file holds no secrets".to_owned(), hint));
            }
            other => return Err(wrong(format!("unknown setting {} of cluster", crate::output::shown(other)), KEYS)),
        }
    }
    let wrong = |what: &str, hint: &str| Wrong { at, what: what.to_owned(), hint: hint.to_owned() };
    let engine = engine.ok_or_else(|| wrong("[cluster] has no engine", ENGINES))?;
    let has_more = !urls.is_empty() || user.is_some() || password_file.is_some() || ca_file.is_some();
    match engine {
        Engine::Etcd if urls.is_empty() => Err(wrong("etcd has no urls", "write urls = [\"https://HOST:2379\", ...]")),
        Engine::Etcd if user.is_some() != password_file.is_some() => {
            Err(wrong("user and password-file belong together", "write both, or neither"))
        }
        Engine::Embedded | Engine::Head if has_more => {
            Err(wrong("urls, user, password-file and ca-file are for etcd", "write engine = \"etcd\", or remove them"))
        }
        _ => Ok(ClusterTable { engine, urls, user, password_file, ca_file }),
    }
}
