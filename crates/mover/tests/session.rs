//! Whole transfers through a real endpoint over loopback, both directions.

mod endpoint;
mod memory;
mod reviews;
mod connectors;
mod opening;
mod requests;
mod follow;

use endpoint::{client, content, describe, endpoint, make_tree};
use model::options::{Fsync, Verify};
use model::{DigestAlgorithm, JobId, TransferOptions};
use mover::session::{PullSpec, PushSpec};
use mover::{Ending, Progress, Report};
use std::path::Path;
use std::sync::Arc;
use store::posix::{PosixSink, PosixSource, beneath};

fn source(path: &Path) -> Arc<PosixSource> {
    let mut source = PosixSource::new();
    source.add_local(format!("{}/", path.display()).as_bytes()).unwrap();
    Arc::new(source)
}

fn sink(path: &Path) -> Arc<PosixSink> {
    let directory = Arc::new(beneath::open_directory(path).unwrap());
    Arc::new(PosixSink::new(directory.clone(), directory, None))
}

fn finished(report: &Report) {
    assert!(matches!(report.ending, Ending::Finished(_)), "{:?} {:?}", report.ending, report.snapshot.counts);
    assert_eq!(report.snapshot.counts.files_failed, 0);
}

fn push_spec(path: &str, options: TransferOptions) -> PushSpec {
    PushSpec { id: JobId([1; 16]), path: path.into(), is_single: false, options }
}

/// Small files, enough of them for several lanes.
fn make_files(directory: &Path) {
    std::fs::create_dir_all(directory).unwrap();
    for i in 0..300usize {
        std::fs::write(directory.join(format!("{i:04}")), content(i as u64, (i * 37) % 3000)).unwrap();
    }
}

#[test]
fn a_tree_arrives_as_it_was_and_a_second_push_moves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (from, root) = (dir.path().join("from"), dir.path().join("root"));
    std::fs::create_dir_all(&root).unwrap();
    make_tree(&from);
    let endpoint = endpoint(&root);
    let client = client(&endpoint, None);
    let options = TransferOptions::default();
    let report = client.push(push_spec("to/here", options.clone()), source(&from), Progress::new(), None, &|| false);
    finished(&report);
    assert_eq!(describe(&from), describe(&root.join("to/here")));
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 1, "staging is removed");
    let again = client.push(push_spec("to/here", options), source(&from), Progress::new(), None, &|| false);
    finished(&again);
    assert_eq!(again.snapshot.counts.bytes_sent, 0);
    assert_eq!(again.snapshot.counts.files_skipped, report.snapshot.counts.files_done);
    client.close();
}

#[test]
fn a_tree_is_pulled_with_every_option_that_changes_the_path() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    make_tree(&root.join("data"));
    let endpoint = endpoint(&root);
    for (i, options) in [
        TransferOptions::default(),
        TransferOptions { digest: DigestAlgorithm::Blake3, verify: Verify::Reread, ..TransferOptions::default() },
        TransferOptions { fsync: Fsync::File, chunk_bytes: 1 << 20, ..TransferOptions::default() },
        TransferOptions { fsync: Fsync::Never, ..TransferOptions::default() },
    ]
    .into_iter()
    .enumerate()
    {
        let to = dir.path().join(format!("to{i}"));
        std::fs::create_dir(&to).unwrap();
        let client = client(&endpoint, Some(1 + i as u32));
        let spec = PullSpec {
            id: JobId([2; 16]),
            paths: vec![b"data/".to_vec()],
            options,
            rename_to: None,
            is_sequential: false,
        };
        let report = client.pull(spec, sink(&to), Progress::new(), None, &|| false).unwrap();
        finished(&report);
        assert_eq!(describe(&root.join("data")), describe(&to));
        client.close();
    }
}

#[test]
fn one_session_pushes_and_pulls_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (from, root, back) = (dir.path().join("from"), dir.path().join("root"), dir.path().join("back"));
    make_tree(&from);
    make_tree(&root.join("data"));
    std::fs::create_dir(&back).unwrap();
    let endpoint = endpoint(&root);
    let client = client(&endpoint, None);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let spec = push_spec("pushed", TransferOptions::default());
            finished(&client.push(spec, source(&from), Progress::new(), None, &|| false));
        });
        let spec = PullSpec {
            id: JobId([3; 16]),
            paths: vec![b"data".to_vec()],
            options: TransferOptions::default(),
            rename_to: None,
            is_sequential: false,
        };
        finished(&client.pull(spec, sink(&back), Progress::new(), None, &|| false).unwrap());
    });
    assert_eq!(describe(&from), describe(&root.join("pushed")));
    assert_eq!(describe(&root.join("data")), describe(&back.join("data")));
    client.close();
}

#[test]
fn an_interrupted_push_resumes_with_the_chunks_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let (from, root) = (dir.path().join("from"), dir.path().join("root"));
    std::fs::create_dir_all(&from).unwrap();
    std::fs::create_dir_all(&root).unwrap();
    std::fs::write(from.join("big"), endpoint::content(5, 300 << 20)).unwrap();
    let endpoint = endpoint(&root);
    let options = TransferOptions { chunk_bytes: 1 << 20, ..TransferOptions::default() };
    let first = client(&endpoint, None);
    let progress = Progress::new();
    let watched = progress.clone();
    let report = first.push(push_spec("to", options.clone()), source(&from), progress, None, &move || {
        watched.snapshot().counts.bytes_sent > 20 << 20
    });
    assert!(matches!(report.ending, Ending::Cancelled { .. }), "{:?} {:?}", report.ending, report.snapshot.counts);
    drop(first);
    assert!(!root.join("to/big").exists());
    let second = client(&endpoint, None);
    let report = second.push(push_spec("to", options), source(&from), Progress::new(), None, &|| false);
    finished(&report);
    assert!(report.snapshot.counts.bytes_sent < 290 << 20, "{:?}", report.snapshot.counts);
    assert!(report.snapshot.counts.bytes_resumed > 0);
    assert_eq!(describe(&from), describe(&root.join("to")));
    second.close();
}

#[test]
fn a_local_copy_is_the_same_tree() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    make_tree(&from);
    std::fs::create_dir(&to).unwrap();
    let spec = mover::local::LocalSpec {
        id: JobId([4; 16]),
        options: TransferOptions::default(),
        rename_to: None,
        lanes: None,
        lanes_first: None,
        is_sequential: false,
        memory: mover::Memory::default(),
    };
    let report = mover::local::copy(spec, source(&from), sink(&to), Progress::new(), None, &|| false).unwrap();
    finished(&report);
    assert_eq!(describe(&from), describe(&to));
}
