//! Bundles of measurements: compared with each other, and written again from their raw samples.

use crate::bed::{Bed, Ran};
use std::fs;

const HEADER: &str = "set,class,tool,round,state,seconds,reported_seconds,bytes,files,client_cpu_seconds,note";

/// A bundle as an earlier version left it: no condition, no word about whose a tool is.
fn bundle(bed: &Bed, name: &str, seconds: [f64; 2]) {
    let mut table = format!("{HEADER}\n");
    for (tool, seconds) in ["thalweg", "rsync"].into_iter().zip(seconds) {
        for round in 0..=4 {
            let state = if round == 0 { "discarded" } else { "counted" };
            let seconds = seconds * (1.0 + 0.001 * f64::from(round));
            table += &format!("large,network,{tool},{round},{state},{seconds:.6},,4294967296,4,2.00,\n");
        }
    }
    bed.write(&format!("{name}/samples.csv"), table.as_bytes());
}

fn diff(bed: &Bed, more: &[&str]) -> Ran {
    let mut args = vec!["bench", "diff", "before", "after"];
    args.extend(more);
    bed.run(&args)
}

fn text(ran: &Ran) -> String {
    String::from_utf8(ran.stdout.clone()).unwrap()
}

#[test]
fn a_regression_has_an_exit_code_of_its_own() {
    let bed = Bed::new();
    bundle(&bed, "before", [2.0, 4.0]);
    bundle(&bed, "after", [2.2, 4.0]);
    let ran = diff(&bed, &[]);
    assert_eq!(ran.code, Some(25), "{}", ran.stderr);
    assert!(text(&ran).contains("large, thalweg  17.14 -> 15.58 Gbit/s (-9.1 %, WORSE)"), "{}", text(&ran));
    let told = "2 compared, 1 changed, 1 regressed, 0 inconclusive for a loss of 5.0 %\n";
    assert!(text(&ran).ends_with(told), "{}", text(&ran));
    assert_eq!(diff(&bed, &["--tolerance", "20"]).code, Some(0));
    let ran = diff(&bed, &["--json"]);
    let found: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!((ran.code, found["regressions"].as_u64()), (Some(25), Some(1)));
    assert_eq!(found["pairs"][0]["gbit_per_second"]["verdict"], "worse");
}

#[test]
fn a_slower_rival_is_no_regression() {
    let bed = Bed::new();
    bundle(&bed, "before", [2.0, 4.0]);
    bundle(&bed, "after", [2.0, 5.0]);
    let ran = diff(&bed, &[]).succeeded();
    assert!(text(&ran).contains("WORSE) [rival]"), "{}", text(&ran));
}

#[test]
fn a_comparison_that_could_not_have_seen_a_loss_of_the_tolerance_says_so_and_has_an_exit_code() {
    let bed = Bed::new();
    bundle(&bed, "before", [2.0, 4.0]);
    bundle(&bed, "after", [2.0, 4.0]);
    let path = bed.path("after/samples.csv");
    let table = fs::read_to_string(&path).unwrap();
    // One run of ours took a fifth longer.
    fs::write(&path, table.replacen("counted,2.002000", "counted,2.402000", 1)).unwrap();
    let ran = diff(&bed, &[]);
    assert_eq!(ran.code, Some(26), "{}", text(&ran));
    assert!(text(&ran).contains("large, thalweg: n=4 detects a loss of ") && text(&ran).contains("for 5.0 %, "));
    assert!(text(&ran).ends_with("1 inconclusive for a loss of 5.0 %\n"), "{}", text(&ran));
    // A rival's noise is nobody's doubt.
    fs::write(&path, table.replacen("counted,4.004000", "counted,4.804000", 1)).unwrap();
    assert_eq!(diff(&bed, &[]).code, Some(0));
    let ran = bed.run(&["bench", "diff", "before"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.error().starts_with("error: before holds no race of two builds of ours\n"), "{}", ran.error());
    // Two builds in one race, of which the later one is 6 % slower in every round.
    let mut race = format!("{HEADER}\n").replace("tool,", "tool,ours,");
    for round in 0..=4 {
        let state = if round == 0 { "discarded" } else { "counted" };
        for (tool, seconds) in [("earlier", 2.0), ("thalweg", 2.12)] {
            let seconds = seconds * (1.0 + 0.1 * f64::from(round)) * (1.0 + 0.001 * f64::from(round % 2));
            race += &format!("large,network,{tool},true,{round},{state},{seconds:.6},,4294967296,4,2.00,\n");
        }
    }
    bed.write("race/samples.csv", race.as_bytes());
    let ran = bed.run(&["bench", "diff", "race"]);
    assert_eq!(ran.code, Some(25), "{}{}", text(&ran), ran.stderr);
    assert!(text(&ran).contains("n=4 detects a loss of 0.0 %"), "{}", text(&ran));
}

#[test]
fn missing_and_damaged_bundles_are_refused_with_file_and_line() {
    let bed = Bed::new();
    bundle(&bed, "before", [2.0, 4.0]);
    let hint = "hint: name an undamaged directory written by `thalweg bench` with --out";
    let ran = diff(&bed, &[]);
    let said = format!("error: read after: this is no bundle: it holds no `samples.csv`\n{hint}");
    assert_eq!((ran.code, ran.error()), (Some(2), said));
    bundle(&bed, "after", [2.0, 4.0]);
    let path = bed.path("after/samples.csv");
    let table = fs::read_to_string(&path).unwrap();
    fs::write(&path, table.replacen("counted", "c\u{1b}unted", 1)).unwrap();
    let ran = diff(&bed, &[]);
    assert!(ran.error().starts_with("error: read after/samples.csv line 3: `state` is "), "{}", ran.error());
    assert!(!ran.stderr.contains('\u{1b}'));
    fs::write(&path, &table[..table.len() - 30]).unwrap();
    assert!(diff(&bed, &[]).error().starts_with("error: read after/samples.csv line 11: "));
    fs::write(&path, &table).unwrap();
    bed.write("after/summary.json", b"{\"v\": 1,\n \"environment\": {\"cores\": \"two\"}}");
    let ran = diff(&bed, &[]);
    assert!(ran.error().starts_with("error: read after/summary.json: "), "{}", ran.error());
    assert_eq!(ran.code, Some(2));
}

#[test]
fn a_bundle_is_written_again_from_its_samples() {
    let bed = Bed::new();
    bundle(&bed, "before", [2.0, 4.0]);
    bed.write("before/plots/drawn-by-hand.svg", b"<svg xmlns='http://www.w3.org/2000/svg'><script>x</script></svg>");
    let ran = bed.run(&["bench", "report", "before"]).succeeded();
    assert!(text(&ran).contains("| thalweg / rsync | 4 | 2.00 |"), "{}", text(&ran));
    let page = fs::read_to_string(bed.path("before/report.html")).unwrap();
    assert!(page.contains("drawn-by-hand") && page.contains("large: every run"), "{page}");
    // Alone on the page: nothing is fetched, nothing runs.
    assert!(!page.contains("<script") && !page.contains("src=\"http") && !page.contains("@import"), "{page}");
    for name in ["README.md", "summary.md", "summary.json", "plots/runs-large.svg", "plots/runs-large.gp"] {
        assert!(bed.path("before").join(name).exists(), "{name}");
    }
    let samples = fs::read(bed.path("before/samples.csv")).unwrap();
    bed.run(&["bench", "report", "before"]).succeeded();
    assert_eq!(fs::read(bed.path("before/samples.csv")).unwrap(), samples);
    bed.run(&["bench", "report", "before", "--out", "elsewhere"]).succeeded();
    bed.run(&["bench", "diff", "before", "elsewhere"]).succeeded();
}
