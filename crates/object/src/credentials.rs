//! The keys that requests are signed with, from the places where other programs look for them too.
//!
//! In this order: the file that the store's table names; `AWS_ACCESS_KEY_ID` with its companions, unless a profile is named in the store's table; the profile's keys or its
//! `credential_process`; a container's endpoint; the instance's role, unless `AWS_EC2_METADATA_DISABLED`. Keys that expire are fetched
//! again five minutes early.
//!
//! Invariants: secrets are never shown, not even by `Debug`; metadata services are asked over connections of their own. While keys are
//! good nobody but whoever renews them waits for others, and for a process not longer than `PROCESS_PATIENCE`.

use crate::config::StoreConfig;
use crate::failure::printable;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{Builder, park_timeout};
use std::time::{Duration, Instant, SystemTime};
use web::{Client, Origin, Request, Trust};

const RENEWED_EARLY: Duration = Duration::from_secs(300);
/// While the old keys are good, others are looked for again after so long where none were to be had. Nor are they given up
/// more often where a store refuses them.
const RENEWAL_PAUSE: Duration = Duration::from_secs(10);
/// Of what a metadata service or a process answers.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// A `credential_process` that takes longer is ended.
const PROCESS_PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked at.
const PROCESS_INTERVAL: Duration = Duration::from_millis(10);
/// What it printed comes right after its end, unless something else has its output.
const OUTPUT_PATIENCE: Duration = Duration::from_secs(1);
/// The names of id, secret and token: as a process prints them, and as a metadata service tells them.
pub const OF_PROCESS: (&str, &str, &str) = ("AccessKeyId", "SecretAccessKey", "SessionToken");
pub const OF_ROLE: (&str, &str, &str) = ("AccessKeyId", "SecretAccessKey", "Token");

#[derive(Clone)]
pub struct Keys {
    pub id: String,
    pub secret: String,
    pub token: Option<String>,
    pub expires: Option<SystemTime>,
    /// Where they were found, for people.
    pub origin: &'static str,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keys({})", self.origin)
    }
}

/// Keys as they are needed, renewed before they expire.
pub struct Credentials {
    config: StoreConfig,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    keys: Option<Keys>,
    /// When no others were to be had, and why.
    failed: Option<(Instant, String)>,
    /// When some were given up that a store refused.
    refused: Option<Instant>,
    is_renewing: bool,
}

impl Kept {
    /// There are keys that are good for so long at least.
    fn lasts(&self, time: Duration) -> bool {
        let is_good = |keys: &Keys| keys.expires.is_none_or(|end| SystemTime::now() + time < end);
        self.keys.as_ref().is_some_and(is_good)
    }

    /// Takes what came of looking for others. Where that is nothing, the old ones stay as long as they are good.
    fn take_in(&mut self, found: Result<Keys, String>) -> Result<Option<Keys>, String> {
        match found {
            Ok(keys) => (self.keys, self.failed) = (Some(keys), None),
            Err(why) => {
                self.failed = Some((Instant::now(), why.clone()));
                if !self.lasts(Duration::ZERO) {
                    return Err(why);
                }
            }
        }
        Ok(self.keys.clone())
    }
}

impl Credentials {
    pub fn new(config: &StoreConfig) -> Credentials {
        Credentials { config: config.clone(), kept: Mutex::default() }
    }

    /// `None` where requests are not to be signed.
    pub fn keys(&self) -> Result<Option<Keys>, String> {
        if self.config.anonymous {
            return Ok(None);
        }
        let asked = Instant::now();
        let mut kept = self.kept.lock().unwrap();
        let failed = kept.failed.as_ref().map(|(when, _)| *when);
        if kept.lasts(Duration::ZERO) {
            let is_tried = kept.is_renewing || failed.is_some_and(|when| when.elapsed() < RENEWAL_PAUSE);
            if kept.lasts(RENEWED_EARLY) || is_tried {
                return Ok(kept.keys.clone());
            }
            // They are renewed early: the old ones are good for a while yet.
            kept.is_renewing = true;
            drop(kept);
            let found = find(&self.config);
            kept = self.kept.lock().unwrap();
            kept.is_renewing = false;
            return kept.take_in(found);
        }
        // Whoever waited while others looked hears what they heard.
        if let Some((when, why)) = &kept.failed
            && *when >= asked
        {
            return Err(why.clone());
        }
        kept.take_in(find(&self.config))
    }

    /// These keys were refused; true where others are kept by now, or may be had. For a store that refuses every request
    /// they are not looked for each time.
    pub fn expire(&self, refused: &Keys) -> bool {
        let mut kept = self.kept.lock().unwrap();
        let parts = |keys: &Keys| (keys.id.clone(), keys.secret.clone(), keys.token.clone());
        if kept.keys.as_ref().is_some_and(|keys| parts(keys) != parts(refused)) {
            return true;
        }
        if kept.keys.is_some() && kept.refused.is_some_and(|when| when.elapsed() < RENEWAL_PAUSE) {
            return false;
        }
        (kept.keys, kept.refused) = (None, Some(Instant::now()));
        refused.expires.is_some()
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn find(config: &StoreConfig) -> Result<Keys, String> {
    if let Some(path) = &config.credentials_file {
        let section = config.aws_profile.as_deref().unwrap_or("default");
        let text = std::fs::read_to_string(path).map_err(|e| format!("read {}: {e}", path.display()))?;
        let keys = from_settings(&|key| setting(&text, section, key), "the store's credentials_file")?;
        return keys.ok_or_else(|| format!("{} has no keys in its section [{section}]", path.display()));
    }
    if config.aws_profile.is_none()
        && let (Some(id), Some(secret)) = (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"))
    {
        let token = variable("AWS_SESSION_TOKEN");
        return Ok(Keys { id, secret, token, expires: None, origin: "AWS_ACCESS_KEY_ID" });
    }
    let profile = config.aws_profile.clone().or_else(|| variable("AWS_PROFILE"));
    if let Some(keys) = from_profile(profile.as_deref().unwrap_or("default"))? {
        return Ok(keys);
    }
    if let Some(name) = profile {
        return Err(format!("the AWS files have no keys for profile {name}"));
    }
    if let Some(keys) = from_container()? {
        return Ok(keys);
    }
    let is_off = variable("AWS_EC2_METADATA_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    if !is_off && let Some(keys) = from_instance() {
        return Ok(keys);
    }
    Err("no keys were found for this store".to_owned())
}

/// A section of the files that the AWS tools share.
fn from_profile(profile: &str) -> Result<Option<Keys>, String> {
    let home = variable("HOME").map(PathBuf::from).unwrap_or_default();
    let file = |name: &str, usual: &str| variable(name).map_or_else(|| home.join(".aws").join(usual), PathBuf::from);
    let shared = std::fs::read_to_string(file("AWS_SHARED_CREDENTIALS_FILE", "credentials")).unwrap_or_default();
    let config = std::fs::read_to_string(file("AWS_CONFIG_FILE", "config")).unwrap_or_default();
    let long = format!("profile {profile}");
    let value = |key: &str| {
        let in_config = || setting(&config, &long, key).or_else(|| setting(&config, profile, key));
        setting(&shared, profile, key).or_else(in_config)
    };
    from_settings(&value, "the AWS files")
}

fn from_settings(value: &dyn Fn(&str) -> Option<String>, origin: &'static str) -> Result<Option<Keys>, String> {
    if let (Some(id), Some(secret)) = (value("aws_access_key_id"), value("aws_secret_access_key")) {
        let token = value("aws_session_token");
        return Ok(Some(Keys { id, secret, token, expires: None, origin }));
    }
    value("credential_process").map(|command| from_process(&command, PROCESS_PATIENCE)).transpose()
}

/// The value of a key in a section of an INI file.
fn setting(text: &str, section: &str, key: &str) -> Option<String> {
    let mut is_inside = false;
    for line in text.lines().map(str::trim) {
        match line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(name) => is_inside = name.split_whitespace().eq(section.split_whitespace()),
            None if is_inside && !line.starts_with(['#', ';']) => match line.split_once('=') {
                Some((name, value)) if name.trim() == key => return Some(value.trim().to_owned()),
                _ => {}
            },
            None => {}
        }
    }
    None
}

fn from_process(command: &str, patience: Duration) -> Result<Keys, String> {
    let mut command_line = Command::new("/bin/sh");
    command_line.arg("-c").arg(command).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command_line.spawn().map_err(|e| format!("credential_process could not be started: {e}"))?;
    let (printed, complained) = (child.stdout.take().map(read_beside), child.stderr.take().map(read_beside));
    let text = |output: Option<Receiver<Vec<u8>>>| {
        output.and_then(|output| output.recv_timeout(OUTPUT_PATIENCE).ok()).unwrap_or_default()
    };
    let status = wait(&mut child, patience);
    // What it says of itself; what it prints is secret.
    let words = || match last_line(&text(complained)) {
        Some(line) => format!(": {line}"),
        None => String::new(),
    };
    match status {
        None => Err(format!("credential_process did not end within {} s{}", patience.as_secs(), words())),
        Some(status) if !status.success() => Err(format!("credential_process failed ({status}){}", words())),
        Some(_) => {
            let keys = from_json(&text(printed), OF_PROCESS, "credential_process");
            keys.ok_or_else(|| format!("credential_process printed no keys{}", words()))
        }
    }
}

/// Reads what a process prints, as it comes: one that prints too much is not waited for.
fn read_beside(output: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (tell, told) = channel();
    let read = move || {
        let mut bytes = Vec::new();
        let _ = output.take(ANSWER_BYTES_MAX as u64).read_to_end(&mut bytes);
        let _ = tell.send(bytes);
    };
    // Without a thread nothing is told.
    let _ = Builder::new().name("store".to_owned()).spawn(read);
    told
}

/// How a process ended; nothing of one that had to be killed.
fn wait(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let began = Instant::now();
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if began.elapsed() >= patience {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        park_timeout(PROCESS_INTERVAL);
    }
}

fn last_line(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    text.lines().rev().map(printable).find(|line| !line.trim().is_empty())
}

/// Keys under the names that their parts have in such an answer.
pub fn from_json(text: &[u8], names: (&str, &str, &str), origin: &'static str) -> Option<Keys> {
    let json: serde_json::Value = serde_json::from_slice(text).ok()?;
    let text = |name: &str| json.get(name).and_then(|value| value.as_str()).map(str::to_owned);
    let expires = text("Expiration").and_then(|time| crate::metadata::moment(&time));
    let expires = expires.and_then(|seconds| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds as u64)));
    Some(Keys { id: text(names.0)?, secret: text(names.1)?, token: text(names.2), expires, origin })
}

fn from_container() -> Result<Option<Keys>, String> {
    let url = match (variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"), variable("AWS_CONTAINER_CREDENTIALS_FULL_URI"))
    {
        (Some(path), _) => format!("http://169.254.170.2{path}"),
        (None, Some(url)) => url,
        (None, None) => return Ok(None),
    };
    let file = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE").and_then(|path| std::fs::read_to_string(path).ok());
    let token = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN").or(file);
    let headers: Vec<_> =
        token.map(|token| ("authorization".to_owned(), token.trim().to_owned())).into_iter().collect();
    let answer = fetch("GET", &url, &headers).map_err(|e| format!("the container's keys: {e}"))?;
    let keys = from_json(&answer, OF_ROLE, "the container's role");
    keys.map(Some).ok_or_else(|| "the container's endpoint gave no keys".to_owned())
}

/// The instance metadata service, version 2.
fn from_instance() -> Option<Keys> {
    const ROLES: &str = "http://169.254.169.254/latest/meta-data/iam/security-credentials/";
    let ttl = [("x-aws-ec2-metadata-token-ttl-seconds".to_owned(), "21600".to_owned())];
    let token = fetch("PUT", "http://169.254.169.254/latest/api/token", &ttl).ok()?;
    let token = [("x-aws-ec2-metadata-token".to_owned(), String::from_utf8(token).ok()?)];
    let role = String::from_utf8(fetch("GET", ROLES, &token).ok()?).ok()?;
    let role = role.lines().next().filter(|role| !role.is_empty())?;
    from_json(&fetch("GET", &format!("{ROLES}{role}"), &token).ok()?, OF_ROLE, "the instance's role")
}

fn fetch(method: &'static str, url: &str, headers: &[(String, String)]) -> Result<Vec<u8>, String> {
    let scheme_end = url.find("://").map_or(0, |at| at + 3);
    let path_start = url[scheme_end..].find('/').map_or(url.len(), |at| at + scheme_end);
    let origin = Origin::parse(&url[..path_start]).map_err(|e| e.text)?;
    let target = if path_start == url.len() { "/" } else { &url[path_start..] };
    let client = Client::new(origin, &Trust::Host).map_err(|e| e.text)?;
    let response = client.send(&Request { method, target, headers, body: &[] }).map_err(|e| e.text)?;
    match response.status {
        200 => response.into_bytes(ANSWER_BYTES_MAX).map_err(|e| e.text),
        status => Err(format!("status {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_has_its_own_keys_and_no_others() {
        let text = "[default]\naws_access_key_id = A\n# aws_access_key_id = Z\n[profile  b]\naws_access_key_id=B\n";
        let id = |section| setting(text, section, "aws_access_key_id");
        assert_eq!((id("default").as_deref(), id("profile b").as_deref(), id("b")), (Some("A"), Some("B"), None));
    }

    #[test]
    fn keys_of_a_role_are_read_with_their_end_and_are_not_shown() {
        let text = br#"{"AccessKeyId":"I","SecretAccessKey":"hush","Token":"T","Expiration":"2001-09-09T01:46:40Z"}"#;
        let keys = from_json(text, OF_ROLE, "x").unwrap();
        assert_eq!((&keys.id[..], &keys.secret[..], keys.token.as_deref()), ("I", "hush", Some("T")));
        assert_eq!(keys.expires, Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)));
        assert!(!format!("{keys:?}").contains("hush"));
        assert!(from_json(b"{}", OF_ROLE, "x").is_none() && from_json(b"<html>", OF_ROLE, "x").is_none());
    }

    /// A process that prints what a file has, and fails where that is not there.
    struct Process(tempfile::TempDir);

    impl Process {
        fn credentials(&self) -> Credentials {
            let path = self.0.path().join("credentials");
            let text = format!("[default]\ncredential_process = cat {}\n", self.0.path().join("said").display());
            std::fs::write(&path, text).unwrap();
            Credentials::new(&StoreConfig { credentials_file: Some(path), ..StoreConfig::default() })
        }

        /// Has it print keys that are good for so long.
        fn says(&self, id: &str, seconds: u64) {
            let end = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() + seconds;
            let end = model::Timestamp { seconds: end as i64, nanoseconds: 0 }.rfc3339();
            let text = format!(r#"{{"AccessKeyId":"{id}","SecretAccessKey":"s","Expiration":"{end}"}}"#);
            std::fs::write(self.0.path().join("said"), text).unwrap();
        }

        fn fails(&self) {
            std::fs::remove_file(self.0.path().join("said")).unwrap();
        }
    }

    #[test]
    fn a_process_that_does_not_end_is_ended_and_one_that_fails_says_why() {
        let failed = |command: &str, seconds| from_process(command, Duration::from_secs(seconds)).unwrap_err();
        assert_eq!(failed("exec sleep 3600", 0), "credential_process did not end within 0 s");
        let why = failed("echo hush; echo early >&2; echo no token >&2; echo >&2; exit 3", 600);
        assert_eq!(why, "credential_process failed (exit status: 3): no token");
        assert_eq!(failed("echo hush", 600), "credential_process printed no keys");
        assert!(failed("yes", 600).starts_with("credential_process "), "it prints without end");
    }

    /// The process reads from a pipe: it goes on when somebody writes to it.
    #[test]
    fn whoever_does_not_renew_the_keys_goes_on_with_those_that_are_good() {
        let process = Process(tempfile::tempdir().unwrap());
        let credentials = process.credentials();
        process.says("first", 200);
        assert_eq!(credentials.keys().unwrap().unwrap().id, "first");
        let said = process.0.path().join("said");
        let second = {
            process.says("second", 3600);
            std::fs::read(&said).unwrap()
        };
        process.fails();
        assert!(Command::new("mkfifo").arg(&said).status().unwrap().success());
        std::thread::scope(|scope| {
            let renewing = scope.spawn(|| credentials.keys().unwrap().unwrap().id);
            // It is open once the process reads from it.
            let mut pipe = std::fs::OpenOptions::new().write(true).open(&said).unwrap();
            assert_eq!(credentials.keys().unwrap().unwrap().id, "first");
            std::io::Write::write_all(&mut pipe, &second).unwrap();
            drop(pipe);
            assert_eq!(renewing.join().unwrap(), "second");
        });
    }

    #[test]
    fn keys_that_are_good_are_used_while_no_others_are_to_be_had() {
        let process = Process(tempfile::tempdir().unwrap());
        let credentials = process.credentials();
        process.says("first", 200);
        let first = credentials.keys().unwrap().unwrap();
        process.fails();
        // It is time to renew them, and they last a while yet.
        assert_eq!(credentials.keys().unwrap().unwrap().id, "first");
        // Refused they are good for nothing.
        assert!(credentials.expire(&first) && credentials.keys().is_err());
        process.says("second", 3600);
        assert_eq!(credentials.keys().unwrap().unwrap().id, "second");
    }

    #[test]
    fn whoever_is_refused_late_uses_the_keys_that_others_got_meanwhile() {
        let process = Process(tempfile::tempdir().unwrap());
        let credentials = process.credentials();
        process.says("first", 3600);
        let first = credentials.keys().unwrap().unwrap();
        // Two at once, before anybody has others.
        assert!(credentials.expire(&first) && credentials.expire(&first));
        process.says("second", 3600);
        credentials.keys().unwrap();
        process.fails();
        assert!(credentials.expire(&first));
        assert_eq!(credentials.keys().unwrap().unwrap().id, "second");
    }

    #[test]
    fn keys_that_are_refused_right_after_others_were_are_kept_for_a_while() {
        let process = Process(tempfile::tempdir().unwrap());
        let credentials = process.credentials();
        let id = || credentials.keys().unwrap().unwrap().id;
        process.says("first", 3600);
        let first = credentials.keys().unwrap().unwrap();
        assert!(credentials.expire(&first));
        process.says("second", 3600);
        let second = credentials.keys().unwrap().unwrap();
        process.says("third", 3600);
        for _ in 0..3 {
            assert!(!credentials.expire(&second), "others are looked for again");
            assert_eq!((&second.id[..], &id()[..]), ("second", "second"));
        }
        credentials.kept.lock().unwrap().refused = Instant::now().checked_sub(RENEWAL_PAUSE);
        assert!(credentials.expire(&second));
        assert_eq!(id(), "third");
    }
}
