//! What a job is, as people and programs write it: TOML or JSON, one schema. A key that is not known is an error.
//!
//! Not here: what a transfer's options mean (`model::TransferSpec`).

use crate::channels::{self, Notify};
use crate::windows::Window;
use crate::{Error, Result, strict};
use daemon::error::not_toml;
use model::name::{Escaped, relative_path, unescape};
use model::order::Kind;
use model::synthetic::{is_null, is_synthetic};
use model::{Class, Exit, Location, TransferSpec};
use queue::{Claims, Common, Facts};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use transfer::matrix::{self, Given, Verbs};

/// Of one job.
pub const BODY_BYTES_MAX: usize = 256 << 10;
const LABELS_MAX: usize = 32;
const LABEL_BYTES_MAX: usize = 256;
const AFTER_MAX: usize = 256;
const WORD_BYTES_MAX: usize = 64;
const WINDOWS_MAX: usize = 32;
/// Of a path: no endpoint takes a longer one.
const PATH_BYTES_MAX: usize = 4096;
/// Places that a job is said to write to, and their bytes, before it is said to write to all of its destination.
const CLAIMS_MAX: usize = 64;
const CLAIMS_BYTES_MAX: usize = 4096;

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub struct JobFile {
    /// `copy`, `sync`, `move`, `check` or `follow`.
    #[serde(default = "copy")]
    pub kind: String,
    pub source: Sources,
    pub destination: String,
    /// The long flags of `cp` and `sync` in the form of docs/embedding.md.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub options: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i8>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<Window>,
    /// RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_by: Option<String>,
    /// As `--bwlimit`: bytes per second, or a timetable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// Ids of jobs, or names of the same batch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Who is told of which of its states: channels of the hub, with states.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub notify: Notify,
    /// What other jobs of the same batch call this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Sources {
    One(String),
    Many(Vec<String>),
}

/// A job that makes sense.
#[derive(Clone, Debug)]
pub struct Wish {
    pub facts: Facts,
    pub spec: TransferSpec,
    pub kind: Kind,
}

fn copy() -> String {
    "copy".to_owned()
}

fn wrong(text: impl Into<String>, hint: &str) -> Error {
    Error::new(Exit::Usage, text).hint(hint)
}

const FOLLOW: &str = "follow";
const FIELDS: &str = "docs/hub.md lists the keys of a job file";

impl JobFile {
    /// From TOML.
    pub fn from_toml(text: &str) -> Result<JobFile> {
        let table: toml::Table =
            toml::from_str(text).map_err(|e| wrong(format!("not TOML: {}", not_toml(text, &e)), FIELDS))?;
        JobFile::from_value(json_of(toml::Value::Table(table)))
    }

    /// From JSON.
    pub fn from_json(text: &str) -> Result<JobFile> {
        let value = strict::parse(text).map_err(|e| wrong(format!("not JSON: {e}"), FIELDS))?;
        JobFile::from_value(value)
    }

    pub fn from_value(value: Value) -> Result<JobFile> {
        if !value.is_object() {
            return Err(wrong("a job is an object with keys, and this is none", FIELDS));
        }
        serde_json::from_value(value).map_err(|e| wrong(e.to_string(), FIELDS))
    }

    /// It only finds out what it would do.
    pub fn is_rehearsal(&self) -> bool {
        self.options.get("dry-run") == Some(&Value::Bool(true))
    }

    pub fn sources(&self) -> &[String] {
        match &self.source {
            Sources::One(one) => std::slice::from_ref(one),
            Sources::Many(many) => many,
        }
    }

    /// What is to be moved, for whoever carries it out without a hub.
    pub fn transfer(&self) -> Result<(Kind, TransferSpec)> {
        self.check_bounds()?;
        let kind = self.kind()?;
        let mut spec = self.spec(kind)?;
        if let Some(class) = &self.class {
            let of = class.parse().map_err(|_| wrong(format!("class {class:?} is not high, normal or low"), FIELDS))?;
            spec.options.class = Some(of);
        }
        Ok((kind, spec))
    }

    fn kind(&self) -> Result<Kind> {
        match self.kind.as_str() {
            "copy" => Ok(Kind::Copy),
            "sync" => Ok(Kind::Sync),
            "move" => Ok(Kind::Move),
            "check" => Ok(Kind::Check),
            // An order that follows copies by the option `until`.
            FOLLOW => Ok(Kind::Copy),
            other => Err(wrong(format!("kind {other:?} is not copy, sync, move, check or follow"), FIELDS)),
        }
    }

    /// The same with other values of what may be changed of an open job: `rate`, `class`, `priority`; `null` takes one away.
    pub fn changed(mut self, changes: &Map<String, Value>) -> Result<JobFile> {
        let text = |key: &str, value: &Value| match value {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text.clone())),
            _ => Err(wrong(format!("`{key}` is a text, or null"), FIELDS)),
        };
        for (key, value) in changes {
            match key.as_str() {
                "rate" => {
                    self.rate = text(key, value)?;
                    self.options.remove("bwlimit");
                }
                "class" => self.class = text(key, value)?,
                "priority" => {
                    let number = serde_json::from_value(value.clone());
                    self.priority =
                        number.map_err(|_| wrong("`priority` is a number from -128 to 127, or null", FIELDS))?;
                }
                other => {
                    return Err(wrong(
                        format!("`{other}` of a job cannot be changed"),
                        "rate, class and priority can; for anything else cancel the job and submit another",
                    ));
                }
            }
        }
        Ok(self)
    }

    /// Checks everything that can be checked without asking anybody.
    pub fn wish(&self, owner: &str) -> Result<Wish> {
        let wish = self.known_wish(owner)?;
        self.windows.iter().try_for_each(Window::check)?;
        let is_long = |place: &Location| place.path().len() > PATH_BYTES_MAX;
        if wish.spec.sources.iter().chain([&wish.spec.destination]).any(is_long) {
            let hint = "no endpoint takes a longer one: name a directory above it, and select with filters";
            return Err(wrong("a path of a job has at most 4,096 bytes", hint));
        }
        Ok(wish)
    }

    /// The same of a job that was taken in: its zones may have gone from this host since, and hold it up no more (`almanac`).
    pub fn known_wish(&self, owner: &str) -> Result<Wish> {
        self.check_bounds()?;
        channels::check_bounds(&self.notify)?;
        let kind = self.kind()?;
        let class: Option<Class> = match &self.class {
            Some(word) => Some(word.parse().map_err(|e| wrong(format!("class {e}"), FIELDS))?),
            None => None,
        };
        let mut spec = self.spec(kind)?;
        if !spec.replicas.is_empty() {
            let hint = "`thalweg cp --replica` fetches from several holders";
            return Err(wrong("`replica` is no option of a job between two endpoints", hint));
        }
        let (from, to) = (self.endpoint(&spec.sources)?, self.endpoint(std::slice::from_ref(&spec.destination))?);
        let windows = match self.windows.is_empty() {
            true => None,
            false => Some(serde_json::to_string(&self.windows).expect("texts have a JSON form").into()),
        };
        let nature = nature(owner, kind, &spec);
        // A rehearsal is of now, whenever the job itself may run.
        let is_now = spec.options.is_dry_run;
        let moment = |key, text: &Option<String>| moment(key, text.as_deref()).map(|at| at.filter(|_| !is_now));
        let common = Common {
            owner: owner.into(),
            project: self.project.as_deref().unwrap_or("").into(),
            class: class.unwrap_or_default(),
            priority: self.priority.unwrap_or(0),
            from,
            to,
            start_by: moment("start_by", &self.start_by)?,
            finish_by: moment("finish_by", &self.finish_by)?,
            windows: windows.filter(|_| !is_now),
            is_standing: spec.options.follow.is_some(),
            is_rehearsal: spec.options.is_dry_run,
        };
        let facts = Facts { common: common.into(), claims: Claims::new(&claims(kind, &spec)), nature };
        // Both endpoints hear of it, which share their rates out.
        spec.options.class = class;
        Ok(Wish { facts, spec, kind })
    }

    fn check_bounds(&self) -> Result<()> {
        let is_word = |text: &str| (1..=WORD_BYTES_MAX).contains(&text.len()) && !text.contains(char::is_control);
        let are_words = [&self.project, &self.name].into_iter().flatten().all(|text| is_word(text));
        let is_label = |(key, value): (&String, &String)| is_word(key) && value.len() <= LABEL_BYTES_MAX;
        let size = serde_json::to_string(self).map_or(usize::MAX, |text| text.len());
        let problem = match () {
            () if size > BODY_BYTES_MAX => "the job is larger than 256 KiB",
            () if !are_words => "`project` and `name` have 1 to 64 bytes without control characters",
            () if self.labels.len() > LABELS_MAX => "a job has at most 32 labels",
            () if !self.labels.iter().all(is_label) => "a label has a name of 1 to 64 bytes and a value of at most 256",
            () if self.after.len() > AFTER_MAX => "a job comes after at most 256 others",
            () if self.windows.len() > WINDOWS_MAX => "a job has at most 32 windows",
            () => return Ok(()),
        };
        Err(wrong(problem, FIELDS))
    }

    fn spec(&self, kind: Kind) -> Result<TransferSpec> {
        let sources = self.sources();
        let mut form = Map::new();
        for (key, value) in &self.options {
            if ["version", "sources", "destination", "delete-at-root"].contains(&key.as_str()) {
                return Err(wrong(format!("`{key}` is no option of a job"), FIELDS));
            }
            form.insert(key.clone(), value.clone());
        }
        if self.options.contains_key("delete") && kind != Kind::Sync {
            return Err(wrong("`delete` is for jobs of the kind sync", "set kind = \"sync\""));
        }
        if let Some(rate) = &self.rate
            && form.insert("bwlimit".to_owned(), json!(rate)).is_some()
        {
            return Err(wrong("both `rate` and the option `bwlimit` are set", "leave one of the two out"));
        }
        if kind == Kind::Sync && form.get("delete") == Some(&Value::Bool(true)) {
            let [source] = sources else {
                return Err(wrong("sync takes one source and one destination", "submit a job for each source"));
            };
            let path = location(source)?.path().to_vec();
            if path.is_empty() || path.ends_with(b"/") || path.ends_with(b"/.") {
                form.insert("delete-at-root".to_owned(), json!(true));
            }
        }
        if self.kind == FOLLOW {
            self.check_following(sources)?;
            // What writes goes on, whatever the network does meanwhile.
            form.entry("retries").or_insert(json!(u32::MAX));
        }
        form.insert("version".to_owned(), json!(model::spec::VERSION));
        form.insert("sources".to_owned(), json!(sources));
        form.insert("destination".to_owned(), json!(self.destination));
        let spec: TransferSpec =
            serde_json::from_value(Value::Object(form)).map_err(|e| wrong(e.to_string(), FIELDS))?;
        if spec.options.follow.is_some() != (self.kind == FOLLOW) {
            return Err(wrong("`until` is for jobs of the kind follow", "set kind = \"follow\""));
        }
        if spec.options.tells_changes {
            return Err(wrong("`itemize` needs the copy to run where the command is given", "leave it out"));
        }
        if spec.options.is_dry_run && matches!(kind, Kind::Move | Kind::Check) {
            return Err(wrong("only copies can be rehearsed", "leave `dry-run` out"));
        }
        if kind == Kind::Check && spec.sources.len() > 1 {
            return Err(wrong("a check compares one source with one destination", "submit a job for each source"));
        }
        Ok(spec)
    }

    /// What `thalweg follow` refuses where the files are written. Only its user knows what storage that is.
    fn check_following(&self, sources: &[String]) -> Result<()> {
        if !self.options.contains_key("until") {
            let hint =
                "set until = \"close\" among the options, or \"quiet:60s\" where the files are on network storage";
            return Err(wrong("a job of the kind follow has to say when a file is complete", hint));
        }
        let given = |(key, value): (&String, &Value)| {
            let value = value.as_str().map(str::to_owned).unwrap_or_default();
            Given { name: key.clone(), value, is_typed: true }
        };
        let kept = self.options.get("keep").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let kept = kept.map(|name| Given { name: name.to_owned(), value: String::new(), is_typed: true });
        let given: Vec<_> = self.options.iter().map(given).chain(kept).collect();
        let to = location(&self.destination)?;
        for source in sources {
            let written = Location::Local(location(source)?.path().to_vec());
            matrix::check((Verbs::FOLLOW, FOLLOW), (&written, &to), &given, &|_| true)?;
        }
        Ok(())
    }

    /// The one endpoint of all these locations.
    fn endpoint(&self, locations: &[Location]) -> Result<Arc<str>> {
        let mut found: Option<&str> = None;
        for location in locations {
            let Location::Named { name, path } = location else {
                let text = format!("{location} is at no endpoint");
                return Err(wrong(text, "a job of the hub is between endpoints that it knows: write NAME:PATH"));
            };
            if relative_path(path).is_err() && !is_synthetic(path) {
                let error = Error::new(Exit::Refused, format!("{name}: {}: {}", Escaped(path), transfer::LEAVES_ROOT));
                return Err(error.hint("name a path below the endpoint's root"));
            }
            if found.is_some_and(|other| other != name) {
                return Err(wrong("the sources are at several endpoints", "submit a job for each endpoint"));
            }
            found = Some(name);
        }
        found.map(Arc::from).ok_or_else(|| wrong("a job without a source", FIELDS))
    }
}

/// A TOML value as the same JSON value; times become texts.
fn json_of(value: toml::Value) -> Value {
    match value {
        toml::Value::Table(table) => table.into_iter().map(|(key, value)| (key, json_of(value))).collect(),
        toml::Value::Array(list) => list.into_iter().map(json_of).collect(),
        toml::Value::Datetime(time) => json!(time.to_string()),
        toml::Value::String(text) => json!(text),
        toml::Value::Integer(number) => json!(number),
        toml::Value::Float(number) => json!(number),
        toml::Value::Boolean(truth) => json!(truth),
    }
}

fn location(text: &str) -> Result<Location> {
    let bytes =
        unescape(text.as_bytes()).ok_or_else(|| wrong(format!("{text}: an escape that is not known"), FIELDS))?;
    Location::parse(OsStr::from_bytes(&bytes)).map_err(|e| wrong(e.to_string(), FIELDS))
}

fn moment(key: &str, text: Option<&str>) -> Result<Option<i64>> {
    let Some(text) = text else { return Ok(None) };
    let time: jiff::Timestamp = text.trim().parse().map_err(|_| {
        wrong(format!("{key} = {text:?} is not a moment"), "write it as 2027-03-01T06:00:00+01:00, with its offset")
    })?;
    Ok(Some(time.as_millisecond()))
}

/// Where it writes: the destination, or below it what `cp` makes there of each source.
fn claims(kind: Kind, spec: &TransferSpec) -> Vec<Vec<u8>> {
    // Where nothing is kept, nobody is in another's way.
    if is_null(spec.destination.path()) || spec.options.is_dry_run || kind == Kind::Check {
        return Vec::new();
    }
    let to = spec.destination.path();
    let is_directory = spec.sources.len() > 1 || to.is_empty() || to.ends_with(b"/");
    let all = model::name::join(&relative_path(to).unwrap_or_default());
    let (mut claims, mut bytes) = (BTreeSet::new(), 0);
    for source in &spec.sources {
        let path = source.path();
        let names = relative_path(path).unwrap_or_default();
        let is_contents = path.is_empty() || path.ends_with(b"/") || path.ends_with(b"/.");
        let claim = match names.last().filter(|_| is_directory && !is_contents) {
            Some(last) if all.is_empty() => last.as_bytes().to_vec(),
            Some(last) => [&all[..], b"/", last.as_bytes()].concat(),
            None => all.clone(),
        };
        let length = claim.len();
        bytes += if claims.insert(claim) { length } else { 0 };
        // Each would be compared with each of another job, and is in memory as long as the job is open.
        if claims.len() > CLAIMS_MAX || bytes > CLAIMS_BYTES_MAX {
            return vec![all];
        }
    }
    claims.into_iter().collect()
}

/// What is asked, by whom.
fn nature(owner: &str, kind: Kind, spec: &TransferSpec) -> [u8; 16] {
    let text = serde_json::to_string(spec).unwrap_or_default();
    let digest = net::sha256(format!("thalweg hub 1\n{owner}\n{kind}\n{text}").as_bytes());
    digest[..16].try_into().expect("half of a SHA-256 is 16 bytes long")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(text: &str) -> std::result::Result<Wish, String> {
        JobFile::from_toml(text).and_then(|job| job.wish("anna")).map_err(|e| e.message)
    }

    const PLAIN: &str = "source = \"a:x/\"\ndestination = \"b:y/\"\n";

    #[test]
    fn toml_and_json_are_one_schema() {
        let toml = "kind = \"sync\"\nsource = [\"a:x/\"]\ndestination = \"b:y/\"\nclass = \"low\"\nfinish_by = 2027-01-01T00:00:00Z\n\
            [options]\ndelete = true\n[labels]\nrun = \"7\"\n";
        let json = r#"{"kind":"sync","source":["a:x/"],"destination":"b:y/","class":"low","finish_by":"2027-01-01T00:00:00Z",
            "options":{"delete":true},"labels":{"run":"7"}}"#;
        let (one, other) = (JobFile::from_toml(toml).unwrap(), JobFile::from_json(json).unwrap());
        assert_eq!(one, other);
        let wish = one.wish("anna").unwrap();
        assert!(wish.spec.options.deletion.unwrap().is_at_root);
        assert_eq!(wish.facts.finish_by, Some(1_798_761_600_000));
        assert_eq!(wish.facts.nature, other.wish("anna").unwrap().facts.nature);
        assert_ne!(wish.facts.nature, other.wish("bert").unwrap().facts.nature);
        assert!(!wish.facts.is_rehearsal);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_name() {
        for (more, text) in [
            ("sorce = 1", "unknown field `sorce`"),
            ("kind = \"chek\"", "is not copy, sync, move, check or follow"),
            ("class = \"urgent\"", "is not one of high, normal, low"),
            ("priority = 1000", "i8"),
            ("start_by = \"tomorrow\"", "is not a moment"),
            ("rate = \"fast\"", "fast"),
            ("[options]\nfsnyc = true", "unknown field `fsnyc`"),
            ("[options]\nsources = []", "no option of a job"),
            ("[options]\ndelete = true", "kind sync"),
            ("[options]\ndigest = \"blake3\"\nreplica = [\"c:x\"]", "`replica` is no option of a job"),
            ("[options]\nitemize = true", "where the command is given"),
            ("kind = \"move\"\n[options]\ndry-run = true", "only copies can be rehearsed"),
            ("kind = \"follow\"", "when a file is complete"),
            ("kind = \"follow\"\n[options]\nuntil = \"soon\"", "expected close"),
            ("kind = \"follow\"\n[options]\nuntil = \"close\"\ncompare = \"size\"", "cannot be combined with follow"),
            (
                "kind = \"follow\"\n[options]\nuntil = \"close\"\nkeep = [\"hard-links\"]",
                "cannot be combined with follow",
            ),
            ("[options]\nuntil = \"close\"", "kind follow"),
            ("kind = \"follow\"\n[options]\nend = [\"idle:1m\"]", "when a file is complete"),
            ("project = \"\"", "1 to 64 bytes"),
            ("[[windows]]\nfrom = \"25:00\"\nto = \"06:00\"", "25:00"),
            ("[[windows]]\nfrom = \"22:00\"\nto = \"06:00\"\nzone = \"Mars/Olympus\"", "Mars/Olympus"),
        ] {
            let found = wish(&format!("{PLAIN}{more}")).unwrap_err();
            assert!(found.contains(text), "{more}: {found}");
        }
        for (source, destination, text) in [
            ("x", "b:y", "is at no endpoint"),
            ("a:../x", "b:y", "cannot leave it"),
            ("a:x", "s3://b/y", "is at no endpoint"),
        ] {
            let found = wish(&format!("source = \"{source}\"\ndestination = \"{destination}\"")).unwrap_err();
            assert!(found.contains(text), "{source}: {found}");
        }
        let labels: String = (0..40).map(|n| format!("l{n} = \"\"\n")).collect();
        assert!(wish(&format!("{PLAIN}[labels]\n{labels}")).unwrap_err().contains("at most 32 labels"));
        assert_eq!(wish("a = 1\n[b\n").unwrap_err(), "not TOML: line 2, column 3: unclosed table, expected `]`");
        let list = r#"["copy", "a:x", "b:y", {}, null, null, null, [], null, null, null, [], {}, {}, null]"#;
        assert!(JobFile::from_json(list).unwrap_err().message.contains("object with keys"));
    }

    #[test]
    fn a_job_that_follows_has_the_rules_of_the_command() {
        let text = "kind = \"follow\"\nsource = \"a:daq/\"\ndestination = \"b:daq/\"\n\
            [options]\nuntil = \"rename:*.inprogress\"\nend = [\"marker:STOP\"]\nshow = \"prefix\"\n";
        let wish = wish(text).unwrap();
        let options = &wish.spec.options;
        assert_eq!(options.follow.as_ref().unwrap().until.is_unfinished(b"x.inprogress"), Some(true));
        assert_eq!(options.view.as_ref().unwrap().unfinished, [b"*.inprogress"[..].into()]);
        assert_eq!((wish.kind, wish.spec.retries), (Kind::Copy, u32::MAX));
    }

    #[test]
    fn a_job_claims_what_it_makes_and_no_more() {
        for (source, destination, claims) in [
            ("\"a:x/\"", "b:y/", &["y"][..]),
            ("\"a:x\"", "b:y/", &["y/x"]),
            ("\"a:d/x\"", "b:", &["x"]),
            ("\"a:x\"", "b:y", &["y"]),
            ("[\"a:x\", \"a:z\"]", "b:y", &["y/x", "y/z"]),
            ("\"a:\"", "b:./y//z/.", &["y/z"]),
            ("\"a:x\"", "b:null:", &[]),
        ] {
            let wish = wish(&format!("source = {source}\ndestination = \"{destination}\"")).unwrap();
            let found: Vec<_> = wish.facts.claims.iter().map(|claim| String::from_utf8_lossy(claim)).collect();
            assert_eq!(found, claims, "{source} {destination}");
        }
    }

    #[test]
    fn a_job_of_many_sources_claims_all_of_its_destination() {
        let claims = |count: usize, to: &str| {
            let sources: Vec<String> = (0..count).map(|n| format!("\"a:d/{n}\"")).collect();
            let wish = wish(&format!("source = [{}]\ndestination = \"{to}\"", sources.join(", "))).unwrap();
            wish.facts.claims.iter().map(<[u8]>::to_vec).collect::<Vec<_>>()
        };
        assert_eq!(claims(CLAIMS_MAX, "b:y").len(), CLAIMS_MAX);
        assert_eq!(claims(CLAIMS_MAX + 1, "b:y/z"), [b"y/z".to_vec()]);
        assert_eq!(claims(CLAIMS_MAX + 1, "b:"), [b"".to_vec()]);
    }

    #[test]
    fn what_a_job_holds_in_memory_is_bounded_whatever_it_names() {
        let (short, long) = ("d/".repeat(1500), "d/".repeat(PATH_BYTES_MAX / 2));
        let text = |to: &str| format!("source = [\"a:1\", \"a:2\"]\ndestination = \"b:{to}\"");
        let claims = wish(&text(&short)).unwrap().facts.claims;
        assert_eq!(claims.iter().collect::<Vec<_>>(), [short.trim_end_matches('/').as_bytes()]);
        wish(&text(&long)).unwrap();
        let longer = text(&format!("{long}x"));
        assert!(wish(&longer).unwrap_err().contains("at most 4,096 bytes"));
        // One that was taken in before there was this bound goes on.
        assert!(JobFile::from_toml(&longer).unwrap().known_wish("anna").is_ok());
        for (days, from) in [(8, "22:00"), (1, "0000000022:00")] {
            let days = ["\"mon\""].repeat(days).join(", ");
            let window = format!("{PLAIN}[[windows]]\ndays = [{days}]\nfrom = \"{from}\"\nto = \"06:00\"");
            assert!(wish(&window).unwrap_err().contains("at most 7 days"), "{window}");
        }
    }

    #[test]
    fn paths_may_hold_any_bytes() {
        let wish = wish("source = 'a:x\\xff'\ndestination = 'b:y\\\\z'").unwrap();
        assert_eq!(wish.spec.sources[0].path(), b"x\xff");
        assert_eq!(wish.spec.destination.path(), b"y\\z");
    }
}
