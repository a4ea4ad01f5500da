//! The bundles that the repository holds stay readable, whatever version wrote them.

use std::fs;
use std::path::{Path, PathBuf};

use bench::{diff, report};

fn bundles(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.join("samples.csv").is_file() {
            found.push(path);
        } else if path.is_dir() {
            bundles(&path, found);
        }
    }
}

#[test]
fn every_stored_bundle_is_read_and_equals_itself() {
    let mut found = Vec::new();
    bundles(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results"), &mut found);
    assert!(!found.is_empty());
    for dir in found {
        assert!(dir.join("summary.json").is_file(), "{} lacks the summary.json that names its machine", dir.display());
        let read = report::read(&dir).unwrap_or_else(|error| panic!("{}", error.chain()));
        let same = diff::diff(&read, &read, diff::TOLERANCE_DEFAULT);
        assert!(!same.pairs.is_empty() && same.regressions == 0 && same.machine.is_empty(), "{}", dir.display());
        let copy = tempfile::tempdir().unwrap();
        report::write(&read, copy.path()).unwrap_or_else(|error| panic!("{}", error.chain()));
        let again = report::read(copy.path()).unwrap();
        assert_eq!(again.samples, read.samples);
        assert_eq!(again.environment, read.environment);
        assert!(fs::read_to_string(copy.path().join("report.html")).unwrap().ends_with("</html>\n"));
    }
}
