//! A whole race with stand-ins for our program: what counts, what fails, what is left behind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bench::compare::{self, Options, Pauses, Report};
use bench::sample::State;
use bench::tool::Variant;

/// Serves by writing its ticket and waiting; copies through the file system that both hosts of a race share.
const STAND_IN: &str = r#"#!/bin/sh
case $1 in
--version) echo "stand-in 1" ;;
serve) root=$5; echo "$root" > "$9"; exec sleep 1000 ;;
endpoint) mkdir -p "$XDG_CONFIG_HOME"; cp "$5" "$XDG_CONFIG_HOME/$3" ;;
cp) case $4 in
    far:*) to=$(cat "$XDG_CONFIG_HOME/far")/${4#far:} ;;
    *) to=$4 ;;
    esac
    cp -r "$3." "$to"; AFTERWARDS
    echo '{"v":1,"event":"done","seconds":0.25,"code":0}' ;;
esac
"#;

fn race(dir: &Path, afterwards: &str, rivals: &[&str]) -> Report {
    let program: PathBuf = dir.join("thalweg");
    fs::write(&program, STAND_IN.replace("AFTERWARDS", afterwards)).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let options = Options {
        sets: vec!["30x1KiB".into()],
        variants: vec![Variant::new(program)],
        rivals: rivals.iter().map(|rival| (*rival).to_owned()).collect(),
        rounds: 2,
        with_ceilings: false,
        out: Some(dir.join("report")),
        work_dir: Some(dir.to_owned()),
        pauses: Pauses { memory: Duration::ZERO, quiet_max: Duration::ZERO },
        ..Options::default()
    };
    compare::run(&options, &AtomicBool::new(false), &mut |_| ()).unwrap_or_else(|error| panic!("{}", error.chain()))
}

fn states(report: &Report, tool: &str) -> Vec<State> {
    report.samples.iter().filter(|sample| sample.tool == tool).map(|sample| sample.state).collect()
}

#[test]
fn verified_deliveries_count_and_the_first_round_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let report = race(dir.path(), ":", &["cp"]);
    for tool in ["thalweg (local)", "cp"] {
        assert_eq!(states(&report, tool), [State::Discarded, State::Counted, State::Counted], "{tool}");
    }
    // Without the right to make namespaces the rows between hosts are missing, and said to be.
    let expected = if report.missing.is_empty() { 3 } else { 0 };
    assert_eq!(states(&report, "thalweg").len(), expected, "{:?}", report.missing);
    assert!(report.samples.iter().filter(|sample| sample.tool != "cp").all(|s| s.reported_seconds == Some(0.25)));
    let mut left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["report", "thalweg"]);
    let csv = fs::read_to_string(dir.path().join("report/samples.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + report.samples.len());
    let readme = fs::read_to_string(dir.path().join("report/README.md")).unwrap();
    assert!(readme.contains("thalweg cp --json $WORK/source/ $WORK/delivered/"), "{readme}");
    assert!(!readme.contains(&*dir.path().to_string_lossy()));
}

#[test]
fn a_fast_wrong_answer_never_counts() {
    let dir = tempfile::tempdir().unwrap();
    let report = race(dir.path(), r#"printf x | dd of="$to/f0000007" conv=notrunc seek=9 bs=1 2>/dev/null"#, &["cp"]);
    // Left out after two failures in a row.
    assert_eq!(states(&report, "thalweg (local)"), [State::Failed, State::Failed]);
    let failed = report.samples.iter().find(|sample| sample.tool == "thalweg (local)").unwrap();
    assert_eq!(failed.note, "delivery differs: content differs: f0000007");
    assert_eq!(states(&report, "cp").last(), Some(&State::Counted));
}

#[test]
fn an_unknown_rival_or_set_is_refused_before_anything_starts() {
    let run = |options: Options| compare::run(&options, &AtomicBool::new(false), &mut |_| ()).unwrap_err();
    let rival = run(Options { rivals: vec!["ftp".into()], ..Options::default() });
    let set = run(Options { sets: vec!["huge".into()], ..Options::default() });
    assert_eq!([rival.kind, set.kind], [bench::error::Kind::Usage; 2]);
}
