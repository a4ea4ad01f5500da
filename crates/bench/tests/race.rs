//! A whole race with stand-ins for our program: what counts, what fails, what is left behind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bench::compare::{self, Options, Pauses, Report};
use bench::sample::State;
use bench::tool::{RIVALS, Variant};

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
    let options = options(dir, afterwards, rivals);
    compare::run(&options, &AtomicBool::new(false), &mut |_| ()).unwrap_or_else(|error| panic!("{}", error.chain()))
}

fn options(dir: &Path, afterwards: &str, rivals: &[&str]) -> Options {
    let program: PathBuf = dir.join("thalweg");
    fs::write(&program, STAND_IN.replace("AFTERWARDS", afterwards)).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    Options {
        sets: vec!["30x1KiB".into()],
        variants: vec![Variant::new(program)],
        rivals: rivals.iter().map(|rival| (*rival).to_owned()).collect(),
        rounds: 2,
        with_ceilings: false,
        out: Some(dir.join("report")),
        work_dir: Some(dir.to_owned()),
        pauses: Pauses { memory: Duration::ZERO, quiet_max: Duration::ZERO },
        ..Options::default()
    }
}

/// Writes a file that describes a tool.
fn described(dir: &Path, name: &str, rest: &str) -> PathBuf {
    let path = dir.join(format!("{name}.toml"));
    let text = format!("name = '{name}'\npackage = 'none'\nprotection = 'none'\nversion = ['cp', '--version']\n{rest}");
    fs::write(&path, text).unwrap();
    path
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
fn a_delivery_that_cannot_be_read_is_a_failed_run_and_the_race_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let report = race(dir.path(), r#"mkfifo "$to/pipe""#, &["cp"]);
    let failed = report.samples.iter().find(|sample| sample.tool == "thalweg (local)").unwrap();
    assert!(failed.is_wrong() && failed.note.contains("pipe"), "{}", failed.note);
    assert!(!failed.note.contains(&*dir.path().to_string_lossy()), "{}", failed.note);
    assert_eq!(states(&report, "cp").last(), Some(&State::Counted));
}

#[test]
fn an_unknown_rival_or_set_is_refused_before_anything_starts() {
    let run = |options: Options| compare::run(&options, &AtomicBool::new(false), &mut |_| ()).unwrap_err();
    let rival = run(Options { rivals: vec!["ftp".into()], ..Options::default() });
    let set = run(Options { sets: vec!["huge".into()], ..Options::default() });
    assert_eq!([rival.kind, set.kind], [bench::error::Kind::Usage; 2]);
}

#[test]
fn a_described_tool_races_and_one_that_hangs_is_killed_reported_and_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let copy = "class = 'local'\n[client]\ncommand = ['cp', '-r', '{source}/.', '{delivery}']\n";
    let hanging = "class = 'local'\n[client]\ncommand = ['sh', '-c', 'sleep 1000 & wait']\n";
    let adapters = vec![described(dir.path(), "copy", copy), described(dir.path(), "hanging", hanging)];
    let limit = Duration::from_secs(3);
    let options = Options { adapters, limit, variants: Vec::new(), ..options(dir.path(), ":", &[]) };
    let report = compare::run(&options, &AtomicBool::new(false), &mut |_| ()).unwrap();
    assert_eq!(states(&report, "copy"), [State::Discarded, State::Counted, State::Counted]);
    assert_eq!(states(&report, "hanging"), [State::Failed; 2]);
    assert_eq!(report.samples.iter().find(|s| s.tool == "hanging").unwrap().note, "killed at the limit of 3 s");
    let left_out = "30x1KiB: hanging left out after 2 failures: killed at the limit of 3 s";
    assert!(report.notes.iter().any(|note| note == left_out), "{:?}", report.notes);
}

#[test]
fn a_described_tool_has_servers_for_the_race_or_for_each_run() {
    let dir = tempfile::tempdir().unwrap();
    let client = "[client]\ncommand = ['cp', '-r', '{source}/.', '{delivery}']\n";
    let server = "[server]\ncommand = ['sh', '-c', 'test -e {workspace}/made && touch {workspace}/a && exec sleep 1000']\n\
                  ready_file = '{workspace}/a'\n[[setup]]\nat = 'server'\ncommand = ['touch', '{workspace}/made']\n";
    let each = "[server]\ncommand = ['sh', '-c', 'touch {delivery}.b && exec sleep 1000']\n\
                ready_file = '{delivery}.b'\neach_run = true\n";
    let of_race = described(dir.path(), "of-race", &format!("{client}{server}"));
    let of_run = described(dir.path(), "of-run", &format!("{client}{each}"));
    let dead = described(dir.path(), "dead", &format!("port = 9\n{client}[server]\ncommand = ['false']\n"));
    let adapters = vec![of_race, of_run, dead];
    let options = Options { adapters, variants: Vec::new(), ..options(dir.path(), ":", &[]) };
    let report = compare::run(&options, &AtomicBool::new(false), &mut |_| ()).unwrap();
    if !needs::root() {
        return;
    }
    assert_eq!(report.missing, Vec::<String>::new());
    for tool in ["of-race", "of-run"] {
        assert_eq!(states(&report, tool).len(), 3, "{tool}: {:?}", report.notes);
        // Not a byte of the content went over the network.
        let seen = report.samples.iter().find(|sample| sample.tool == tool).and_then(|sample| sample.network).unwrap();
        assert!(seen.first_byte_seconds.is_none() && seen.sent_bytes < 64 << 10, "{seen:?}");
    }
    assert!(report.notes.iter().any(|note| note.contains("dead") && note.contains("it ended")), "{:?}", report.notes);
    assert!(report.tools.iter().any(|tool| tool.name == "of-race" && tool.setup_seconds.is_some()));
}

#[test]
fn each_run_can_have_a_file_system_of_its_own() {
    if !needs::root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // What a run leaves behind beside its delivery is there for the next one, unless its file system is another.
    let see = "test \"$(stat -f -c %T \"$(dirname \"$to\")\")\" = ext2/ext3 || exit 3; f=$(dirname \"$to\")/left; test ! -e $f || exit 4; touch $f";
    let image = bench::image::Options { kind: "ext4".into(), dir: dir.path().to_owned() };
    let options = Options { image: Some(image), ..options(dir.path(), see, &[]) };
    let report = compare::run(&options, &AtomicBool::new(false), &mut |_| ()).unwrap();
    for tool in ["thalweg", "thalweg (local)"] {
        assert_eq!(states(&report, tool), [State::Discarded, State::Counted, State::Counted], "{:?}", report.samples);
    }
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("image")), "{left:?}");
    assert!(report.environment.file_system.contains("a new ext4"), "{}", report.environment.file_system);
    let wrong = bench::image::Options { kind: "zfs".into(), dir: dir.path().to_owned() };
    let other = Options { image: Some(wrong), out: None, ..options };
    let refused = compare::run(&other, &AtomicBool::new(false), &mut |_| ());
    assert!(refused.unwrap_err().chain().contains("choose one of ext4, xfs, btrfs"));
}

#[test]
fn an_interrupted_race_keeps_its_samples_and_goes_on_where_it_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let copy = described(
        dir.path(),
        "copy",
        "class = 'local'\n[client]\ncommand = ['cp', '-r', '{source}/.', '{delivery}']\n",
    );
    let options = Options { adapters: vec![copy], variants: Vec::new(), ..options(dir.path(), ":", &["cp"]) };
    let cancel = AtomicBool::new(false);
    let error = compare::run(&options, &cancel, &mut |text| {
        cancel.fetch_or(text.contains("round 1: copy"), Ordering::Relaxed);
    });
    assert_eq!(error.unwrap_err().kind, bench::error::Kind::Cancelled);
    let mut left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["copy.toml", "report", "thalweg"]);
    let csv = fs::read_to_string(dir.path().join("report/samples.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + 3, "{csv}");
    let other = Options { is_resumed: true, rounds: 7, ..options.clone() };
    let refused = compare::run(&other, &AtomicBool::new(false), &mut |_| ()).unwrap_err();
    assert!(refused.chain().contains("differs in rounds"), "{}", refused.chain());
    let resumed = Options { is_resumed: true, ..options };
    let mut runs = 0;
    let report =
        compare::run(&resumed, &AtomicBool::new(false), &mut |text| runs += u32::from(text.contains(": round ")))
            .unwrap();
    assert_eq!((runs, states(&report, "cp").len(), states(&report, "copy").len()), (3, 3, 3));
    assert!(!dir.path().join("report/unfinished.jsonl").exists());
}

#[test]
fn a_race_is_not_written_over_another() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { rounds: 1, ..options(dir.path(), ":", &[]) };
    let run = |options: &Options| compare::run(options, &AtomicBool::new(false), &mut |_| ());
    run(&options).unwrap();
    let samples = dir.path().join("report/samples.csv");
    let kept = fs::read(&samples).unwrap();
    let other = Options { sets: vec!["2x1KiB".into()], ..options.clone() };
    let again = Options { is_resumed: true, ..options };
    for (options, why) in [(other, "the directory is not empty"), (again, "it holds no unfinished race")] {
        let refused = run(&options).unwrap_err();
        assert_eq!(refused.kind, bench::error::Kind::Usage);
        assert!(refused.chain().contains(why), "{}", refused.chain());
        assert_eq!(fs::read(&samples).unwrap(), kept);
    }
}

#[test]
fn every_known_rival_that_is_installed_delivers() {
    let dir = tempfile::tempdir().unwrap();
    let rounds = 0;
    let options = Options { rounds, sets: vec!["12x20KiB".into()], ..options(dir.path(), ":", &RIVALS) };
    let report = compare::run(&options, &AtomicBool::new(false), &mut |_| ()).unwrap();
    let is_missing = |rival: &str| report.missing.iter().any(|missing| missing.starts_with(rival));
    if !needs::root() {
        return;
    }
    for rival in RIVALS.iter().filter(|rival| needs::met(!is_missing(rival), format!("{rival} is not installed"))) {
        let samples: Vec<_> = report.samples.iter().filter(|sample| sample.tool == *rival).collect();
        let [sample] = samples[..] else { panic!("{rival}: {:?}", report.notes) };
        assert_eq!(sample.state, State::Discarded, "{rival}: {}", sample.note);
        if let Some(seen) = sample.network {
            assert!(seen.sent_bytes >= sample.bytes && seen.first_byte_seconds.is_some(), "{rival}: {seen:?}");
        }
    }
}
