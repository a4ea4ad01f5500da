//! Channels: to whom the hub tells what became of a job. The operator names them in a file; a job chooses among them.
//!
//! Invariant: no job names an address, a program or a secret, and no secret is in an argument, a log or an answer.

use crate::{Error, Result};
use daemon::private_file;
use model::Exit;
use model::order::Status;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const FILE_BYTES_MAX: u64 = 1 << 20;
const SECRET_BYTES_MAX: u64 = 4096;
const CHANNELS_MAX: usize = 16;
const NAME_BYTES_MAX: usize = 64;
/// Each end of a job.
const ENDED: &str = "ended";

/// A table of the file. One of `webhook`, `mail` and `command` is set.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    webhook: Option<String>,
    /// What its messages are signed with; mode 0600.
    secret_file: Option<PathBuf>,
    /// Lets a webhook be on a network that is nobody else's.
    #[serde(default)]
    allow_private: bool,
    ca_file: Option<PathBuf>,
    #[serde(default)]
    mail: Vec<String>,
    sendmail: Option<PathBuf>,
    #[serde(default)]
    command: Vec<String>,
    /// Of every job, whatever it asks for.
    #[serde(default)]
    on: Vec<String>,
}

#[derive(Clone)]
pub enum Means {
    Webhook { url: String, secret: Vec<u8>, allow_private: bool, ca_file: Option<PathBuf> },
    Mail { to: Vec<String>, sendmail: PathBuf },
    Command { words: Vec<String> },
}

#[derive(Clone)]
pub struct Channel {
    pub means: Means,
    on: Vec<Status>,
}

/// By name.
#[derive(Clone, Default)]
pub struct Channels(BTreeMap<String, Channel>);

/// What a job asks for: channels, with states.
pub type Notify = BTreeMap<String, Vec<String>>;

fn wrong(text: impl Into<String>) -> Error {
    Error::new(Exit::Usage, text).hint("docs/hub.md says what channels are")
}

/// The states that words name.
pub fn states(words: &[String]) -> Result<Vec<Status>> {
    let mut found = Vec::new();
    for word in words {
        match (word.as_str(), Status::from_word(word)) {
            (ENDED, _) => found.extend(Status::ALL.iter().filter(|status| status.is_end())),
            (_, Some(status)) => found.push(status),
            _ => return Err(wrong(format!("{word:?} is no state of a job, nor {ENDED:?}"))),
        }
    }
    Ok(found)
}

impl Channels {
    pub fn read(path: &Path) -> Result<Channels> {
        let absent = || Error::of_file("read", path, std::io::ErrorKind::NotFound.into());
        let bytes = private_file::read(path, FILE_BYTES_MAX, false)?.ok_or_else(absent)?;
        let text = String::from_utf8(bytes).map_err(|_| wrong(format!("{}: not UTF-8", path.display())))?;
        Channels::from_toml(&text).map_err(|e| Error { message: format!("{}: {}", path.display(), e.message), ..e })
    }

    pub(crate) fn from_toml(text: &str) -> Result<Channels> {
        let tables: BTreeMap<String, Table> = toml::from_str(text).map_err(|e| wrong(e.message().to_owned()))?;
        if tables.len() > CHANNELS_MAX {
            return Err(wrong(format!("there are at most {CHANNELS_MAX} channels")));
        }
        let mut channels = Channels::default();
        for (name, table) in tables {
            let channel = table.channel().map_err(|e| Error { message: format!("[{name}]: {}", e.message), ..e })?;
            channels.0.insert(name, channel);
        }
        Ok(channels)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Channel)> {
        self.0.iter().map(|(name, channel)| (&name[..], channel))
    }

    /// That all which a job asks for is there.
    pub fn check(&self, notify: &Notify) -> Result<()> {
        for (name, words) in notify {
            states(words)?;
            if !self.0.contains_key(name) {
                let known: Vec<_> = self.0.keys().map(String::as_str).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return Err(Error::new(Exit::Usage, format!("the hub has no channel {name}"))
                    .hint(format!("known to it: {known}; whoever runs the hub names them with --channels FILE")));
            }
        }
        Ok(())
    }

    /// Who is told of every job that comes into this state.
    pub fn always(&self, status: Status) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(_, channel)| channel.on.contains(&status)).map(|(name, _)| &name[..])
    }
}

impl Table {
    fn channel(self) -> Result<Channel> {
        let on = states(&self.on)?;
        if on.iter().any(|status| !status.is_end()) {
            return Err(wrong("`on` takes the ends of jobs: a job itself asks for its other states"));
        }
        let means = match (self.webhook, &self.mail[..], &self.command[..]) {
            (Some(url), [], []) => {
                let file = self.secret_file.ok_or_else(|| wrong("a webhook needs `secret_file`"))?;
                let absent = || Error::of_file("read", &file, std::io::ErrorKind::NotFound.into());
                let secret = private_file::read(&file, SECRET_BYTES_MAX, true)?.ok_or_else(absent)?;
                let secret = secret.trim_ascii().to_vec();
                if secret.len() < 16 {
                    return Err(wrong("the secret of a webhook has at least 16 bytes"));
                }
                if !(url.starts_with("https://") || self.allow_private && url.starts_with("http://")) {
                    return Err(wrong(
                        "a webhook's address begins with https://; http:// needs `allow_private = true`",
                    ));
                }
                Means::Webhook { url, secret, allow_private: self.allow_private, ca_file: self.ca_file }
            }
            (None, [_, ..], []) => {
                let is_address = |text: &String| {
                    text.len() <= 254
                        && text.contains('@')
                        && !text.starts_with('-')
                        && text.chars().all(|c| c.is_ascii_graphic() && !",;<>()\"\\".contains(c))
                };
                if let Some(text) = self.mail.iter().find(|text| !is_address(text)) {
                    return Err(wrong(format!("{text:?} is not an address")));
                }
                Means::Mail { to: self.mail, sendmail: self.sendmail.unwrap_or_else(|| "/usr/sbin/sendmail".into()) }
            }
            (None, [], [program, ..]) if program.starts_with('/') => Means::Command { words: self.command },
            (None, [], [_, ..]) => return Err(wrong("`command` begins with the whole path of a program")),
            _ => return Err(wrong("a channel has one of `webhook`, `mail` and `command`")),
        };
        Ok(Channel { means, on })
    }
}

/// The bounds of what a job may ask for.
pub fn check_bounds(notify: &Notify) -> Result<()> {
    let is_name = |name: &String| (1..=NAME_BYTES_MAX).contains(&name.len());
    if notify.len() > CHANNELS_MAX || !notify.keys().all(is_name) || notify.values().any(|words| words.len() > 16) {
        return Err(wrong("a job tells at most 16 channels"));
    }
    notify.values().try_for_each(|words| states(words).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn channels_are_read_and_what_is_wrong_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let secret = dir.path().join("secret");
        std::fs::write(&secret, "0123456789abcdef\n").unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        let hook = |more: &str| {
            format!("[ops]\nwebhook = \"https://hooks.example.org/x\"\nsecret_file = \"{}\"\n{more}", secret.display())
        };
        let channels = Channels::from_toml(&hook("on = [\"failed\"]")).unwrap();
        assert_eq!(channels.always(Status::Failed).collect::<Vec<_>>(), ["ops"]);
        assert!(channels.always(Status::Succeeded).next().is_none());
        let asks = |channel: &str, word: &str| Notify::from([(channel.to_owned(), vec![word.to_owned()])]);
        assert!(channels.check(&asks("ops", "ended")).is_ok() && channels.check(&asks("ops", "waiting")).is_ok());
        assert!(channels.check(&asks("none", "ended")).unwrap_err().message.contains("no channel none"));
        assert!(channels.check(&asks("ops", "done")).unwrap_err().message.contains("no state"));
        for (text, why) in [
            (hook("on = [\"running\"]"), "the ends of jobs"),
            (hook("mail = [\"a@b\"]"), "one of"),
            (hook("key = 1"), "unknown field"),
            (hook("").replace("https", "http"), "begins with https://"),
            ("[a]\nwebhook = \"https://x\"".into(), "secret_file"),
            ("[a]\nmail = [\"-oQ/tmp@x\"]".into(), "is not an address"),
            ("[a]\nmail = [\"a@b\\nBcc: c@d\"]".into(), "is not an address"),
            ("[a]\ncommand = [\"mail\"]".into(), "whole path"),
            ("[a]\n".into(), "one of"),
        ] {
            let error = Channels::from_toml(&text).err().unwrap();
            assert!(error.message.contains(why), "{text}: {}", error.message);
        }
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Channels::from_toml(&hook("")).is_err());
    }
}
