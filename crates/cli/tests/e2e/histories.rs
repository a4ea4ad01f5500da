//! What an endpoint has done is read from its ledger, while it runs and afterwards, by `thalweg log`.

use crate::bed::{Bed, Ran, noise};

fn log(bed: &Bed, more: &[&str]) -> Ran {
    bed.finish(bed.command("server", &[&["log"], more].concat()))
}

fn text(ran: &Ran) -> String {
    String::from_utf8(ran.stdout.clone()).unwrap()
}

#[test]
fn jobs_are_listed_with_their_outcome_and_one_is_shown_with_its_failures() {
    let (bed, server) = Bed::with_endpoint();
    bed.write("t/a", &noise(5000, 1));
    bed.write("t/b", &noise(700, 2));
    bed.run(&["cp", "t/", "lab:whole"]).succeeded();
    bed.run(&["cp", "lab:whole/a", "back"]).succeeded();
    // A directory with something in it stands where a file is to be.
    bed.write("root/partly/b/in-the-way", b"x");
    assert_eq!(bed.run(&["cp", "t/", "lab:partly"]).code, Some(23));

    let jobs = log(&bed, &["--json"]).succeeded().events();
    let of = |job: &serde_json::Value| (job["direction"].clone(), job["state"].clone(), job["files"]["ok"].clone());
    let facts: Vec<_> = jobs.iter().map(of).collect();
    let fact = |direction: &str, state: &str, ok: u64| (direction.into(), state.into(), ok.into());
    assert_eq!(facts, [fact("in", "failed", 1), fact("out", "succeeded", 1), fact("in", "succeeded", 2)]);
    assert_eq!(jobs[2]["bytes"], 5700);
    let listed = log(&bed, &[]).succeeded();
    let lines: Vec<_> = text(&listed).lines().map(str::to_owned).collect();
    assert!(
        lines.len() == 3 && lines[0].contains("  failed     client ") && lines[0].ends_with(", 1 failed"),
        "{lines:?}"
    );

    let id = jobs[0]["job"].as_str().unwrap();
    let one = text(&log(&bed, &[&id[..8]]).succeeded());
    assert!(one.contains(id) && one.contains("failed, 1 attempt") && one.contains("\nfailed       b: "), "{one}");
    let rows = log(&bed, &["--json", id]).succeeded().events();
    assert_eq!((rows.len(), rows[0]["job"].as_str(), rows[1]["path"].as_str()), (2, Some(id), Some("b")));

    let bounded = log(&bed, &["--lines", "1"]).succeeded();
    assert_eq!(text(&bounded).lines().count(), 1);
    assert!(bounded.stderr.contains("the latest 1 run is shown; --lines N shows more"), "{}", bounded.stderr);
    assert_eq!(log(&bed, &["--since", "1h", "--json"]).succeeded().events().len(), 3);
    server.stop();
    assert_eq!(text(&log(&bed, &[]).succeeded()), text(&listed), "also when no endpoint runs");
}

/// The same command is the same job, and each of its runs has a line with what came of it.
#[test]
fn every_run_of_a_job_is_listed() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("t/a", &noise(5000, 1));
    bed.write("root/in/b/in-the-way", b"x");
    bed.run(&["cp", "t/", "lab:in"]).succeeded();
    bed.write("t/b", &noise(700, 2));
    assert_eq!(bed.run(&["cp", "t/", "lab:in"]).code, Some(23));
    std::fs::remove_dir_all(bed.path("root/in/b")).unwrap();
    bed.run(&["cp", "t/", "lab:in"]).succeeded();

    let runs = log(&bed, &["--json"]).succeeded().events();
    let fact = |run: &serde_json::Value| {
        (run["state"].as_str().unwrap().to_owned(), run["attempts"].as_u64(), run["bytes"].as_u64())
    };
    let facts: Vec<_> = runs.iter().map(fact).collect();
    let expected = [("succeeded", 3, 700), ("failed", 2, 0), ("succeeded", 1, 5000)];
    assert_eq!(facts, expected.map(|(state, attempts, bytes)| (state.to_owned(), Some(attempts), Some(bytes))));
    assert!(runs.iter().all(|run| run["job"] == runs[0]["job"]), "{runs:?}");
    let id = runs[0]["job"].as_str().unwrap();
    let one = text(&log(&bed, &[&id[..8]]).succeeded());
    let before: Vec<_> = one.lines().filter(|line| line.starts_with("before ")).collect();
    assert!(before.len() == 2 && before[0].ends_with("  failed     0 files, 0 B, 1 there before, 1 failed"), "{one}");
    assert_eq!(log(&bed, &["--json", id]).succeeded().events().len(), 3);
}

#[test]
fn where_no_history_is_that_is_said_and_none_is_made() {
    let bed = Bed::new();
    let ran = bed.run(&["log"]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.error().starts_with("error: there is no history in [DIR]/client/state_home/thalweg: "),
        "{}",
        ran.error()
    );
    assert!(!bed.path("client/state_home").exists());
    let (bed, _server) = Bed::with_endpoint();
    assert!(text(&log(&bed, &[]).succeeded()).is_empty());
    assert_eq!(log(&bed, &["nonsense"]).code, Some(2));
    assert_eq!(log(&bed, &["abcd"]).code, Some(1));
    assert_eq!(log(&bed, &["--lines", "0"]).code, Some(2));
}
