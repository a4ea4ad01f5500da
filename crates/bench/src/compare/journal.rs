//! The runs of a race as they end, one line each, so that an interrupted race can go on where it stopped.
//!
//! Owns: `unfinished.jsonl` in the folder of the report; its first line says which race it is. Invariants: a line is written
//! before the next run starts; a race goes on only with the same sets, tools, builds, arguments, network and storage;
//! the file is gone when the race is complete, and what a complete race has left is not written over.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use lab::scenario::Scenario;
use serde_json::{Value, json};

use super::Options;
use super::record::Report;
use crate::error::{Error, Kind, Result};
use crate::sample::Sample;
use crate::storage::report::check_out;
use crate::tool;

const NAME: &str = "unfinished.jsonl";

#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Starts anew, or takes up what an interrupted race has left; that is returned.
    pub fn open(dir: &Path, identity: &Value, is_resumed: bool) -> Result<(Journal, Vec<Sample>)> {
        let path = dir.join(NAME);
        let text = if is_resumed { left_in(dir)? } else { String::new() };
        let samples = read(&text, identity, &path)?;
        fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
        // Written again in whole: a line that was cut off by a kill goes.
        let temporary = dir.join(format!("{NAME}.new"));
        let mut whole = format!("{identity}\n");
        for sample in &samples {
            whole += &line(sample);
        }
        fs::write(&temporary, whole).map_err(Error::io("write", &temporary))?;
        fs::rename(&temporary, &path).map_err(Error::io("write", &path))?;
        let file = File::options().append(true).open(&path).map_err(Error::io("open", &path))?;
        Ok((Journal { path, file }, samples))
    }

    pub fn append(&mut self, sample: &Sample) -> Result<()> {
        self.file.write_all(line(sample).as_bytes()).map_err(Error::io("write", &self.path))
    }

    /// The race is complete.
    pub fn remove(self) -> Result<()> {
        fs::remove_file(&self.path).map_err(Error::io("remove", &self.path))
    }
}

/// Whether an interrupted race is there.
pub fn is_unfinished(dir: &Path) -> bool {
    dir.join(NAME).exists()
}

/// The whole lines that an interrupted race has left; none in a folder where nothing is yet.
fn left_in(dir: &Path) -> Result<String> {
    let path = dir.join(NAME);
    let mut bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return check_out(dir).map(|()| String::new()).map_err(|error| match error.kind {
                Kind::Usage => {
                    let cause = "it holds no unfinished race, and nothing is written over; name a new directory";
                    Error::usage(dir.display(), cause)
                }
                _ => error,
            });
        }
        Err(error) => return Err(Error::io("read", &path)(error)),
    };
    bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1));
    String::from_utf8(bytes).map_err(|_| Error::usage(path.display(), "it is not text"))
}

/// What two parts of one race must have in common; `working` is the file system of its working directory.
pub fn identity(options: &Options, report: &Report, working: &str) -> Result<Value> {
    let tools: Vec<_> = report.tools.iter().map(|tool| json!([tool.name, tool.class, tool.version])).collect();
    let arguments: Vec<_> =
        options.variants.iter().map(|variant| format!("{:?} {:?}", variant.serve_args, variant.cp_args)).collect();
    let programs = options.variants.iter().map(|variant| tool::digest(&variant.program)).collect::<Result<Vec<_>>>()?;
    let described = |file: &PathBuf| fs::read_to_string(file).map_err(Error::io("read", file));
    let adapters = options.adapters.iter().map(described).collect::<Result<Vec<_>>>()?;
    Ok(json!({
        "sets": options.sets,
        "store": options.store,
        "ways": options.ways,
        "rounds": options.rounds,
        "limit_ms": options.limit.as_millis() as u64,
        "seed": options.seed,
        "arguments": arguments,
        "programs": programs,
        "adapters": adapters,
        "tools": tools,
        // The words below leave out its seed, timeline, MTU and congestion control.
        "scenario": options.scenario.as_ref().map(Scenario::to_toml),
        "network": report.environment.network,
        "file_system": report.environment.file_system,
        "working_file_system": working,
    }))
}

fn read(text: &str, identity: &Value, path: &Path) -> Result<Vec<Sample>> {
    let mut lines = text.lines();
    let Some(first) = lines.next() else { return Ok(Vec::new()) };
    let found: Value = serde_json::from_str(first).unwrap_or_default();
    if found != *identity {
        let parts = identity.as_object().into_iter().flatten();
        let differing: Vec<_> =
            parts.filter(|(key, value)| found[key.as_str()] != **value).map(|(key, _)| key.as_str()).collect();
        let cause = format!(
            "that race differs in {}; repeat its command line, or start over in another directory",
            differing.join(", ")
        );
        return Err(Error::usage(path.display(), cause));
    }
    let sample = |(index, line): (usize, &str)| {
        let damaged = |error| Error::usage(path.display(), format!("line {}: {error}", index + 2));
        serde_json::from_str::<Sample>(line).map_err(damaged)
    };
    lines.enumerate().map(sample).collect()
}

fn line(sample: &Sample) -> String {
    serde_json::to_string(sample).expect("plain values with string keys serialise") + "\n"
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sample::{State, Usage};
    use crate::tool::{Class, Variant};

    fn sample(round: u32) -> Sample {
        Sample {
            condition: String::new(),
            set: "s".into(),
            class: Class::Local,
            tool: "t".into(),
            is_ours: true,
            round,
            state: State::Counted,
            seconds: 0.1,
            reported_seconds: None,
            bytes: 1,
            files: 1,
            client: Usage::default(),
            server: None,
            network: None,
            foreign_cpu_seconds: 0.0,
            steal_seconds: 0.0,
            bottleneck: Some("network".into()),
            note: "a \"note\"".into(),
        }
    }

    #[test]
    fn what_was_written_is_taken_up_without_the_line_that_a_kill_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let identity = json!({"sets": ["s"]});
        let (mut journal, none) = Journal::open(dir.path(), &identity, true).unwrap();
        assert!(none.is_empty());
        (0..3).for_each(|round| journal.append(&sample(round)).unwrap());
        journal.file.write_all(b"{\"condition\":\"").unwrap();
        for _ in 0..2 {
            let (_, found) = Journal::open(dir.path(), &identity, true).unwrap();
            assert_eq!(found, (0..3).map(sample).collect::<Vec<_>>());
        }
        let error = Journal::open(dir.path(), &json!({"sets": ["other"]}), true).unwrap_err();
        assert!(error.chain().contains("differs in sets"), "{}", error.chain());
        assert!(Journal::open(dir.path(), &json!({"sets": ["other"]}), false).unwrap().1.is_empty());
    }

    #[test]
    fn another_build_argument_limit_scenario_or_file_system_makes_another_race() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        fs::write(&program, "one").unwrap();
        let scenario = Scenario::preset("continent").unwrap();
        let of = |options: &Options| identity(options, &Report::default(), "tmpfs").unwrap();
        let options =
            Options { variants: vec![Variant::new(&program)], scenario: Some(scenario.clone()), ..Options::default() };
        let plain = of(&options);
        assert_eq!(plain, serde_json::from_str::<Value>(&of(&options).to_string()).unwrap());
        let reno = Scenario { congestion_control: "reno".into(), ..scenario.clone() };
        let seeded = Scenario { seed: scenario.seed + 1, ..scenario };
        let streams = Variant { cp_args: vec!["--streams=2".into()], ..Variant::new(&program) };
        for other in [
            Options { limit: Duration::from_secs(1), ..options.clone() },
            Options { scenario: Some(reno), ..options.clone() },
            Options { scenario: Some(seeded), ..options.clone() },
            Options { scenario: None, ..options.clone() },
            Options { variants: vec![streams], ..options.clone() },
        ] {
            assert_ne!(plain, of(&other), "{other:?}");
        }
        assert_ne!(plain, identity(&options, &Report::default(), "ext4").unwrap());
        fs::write(&program, "two").unwrap();
        assert_ne!(plain, of(&options));
    }

    #[test]
    fn a_damaged_line_is_not_passed_over() {
        let identity = json!({});
        for rest in [line(&sample(2)), String::new()] {
            let text = format!("{identity}\n{}garbage\n{rest}", line(&sample(0)));
            assert!(read(&text, &identity, Path::new("x")).unwrap_err().chain().contains("line 3"));
        }
    }

    #[test]
    fn a_finished_race_is_not_written_over_and_a_journal_that_cannot_be_read_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Journal::open(dir.path(), &json!({}), true);
        open().unwrap().0.remove().unwrap();
        fs::write(dir.path().join("samples.csv"), "kept").unwrap();
        let error = open().unwrap_err();
        assert!(error.kind == Kind::Usage && error.chain().contains("no unfinished race"), "{}", error.chain());
        assert!(!is_unfinished(dir.path()));
        fs::create_dir(dir.path().join(NAME)).unwrap();
        assert_eq!(open().unwrap_err().kind, Kind::Failed);
        assert_eq!(fs::read(dir.path().join("samples.csv")).unwrap(), b"kept");
    }
}
