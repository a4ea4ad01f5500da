//! The list of what is complete, at the destination: whole lines, after the files, also after an attempt that was broken off.

use super::{Bench, File, Way, append, renamed};
use model::manifest::{ManifestEntry, Parser};
use model::{DigestAlgorithm, Name};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;

const LIST: &str = "COMPLETE";

impl Bench {
    fn listing() -> Bench {
        Bench { list: Some(Name::new(LIST.as_bytes()).unwrap()), ..Bench::new() }
    }

    /// The lines in force, each compared with the file that it names.
    fn listed(&self) -> Vec<ManifestEntry> {
        let text = fs::read(self.to(LIST)).unwrap();
        assert!(text.ends_with(b"\n"), "{text:?}");
        let mut lines = text[..text.len() - 1].split(|byte| *byte == b'\n');
        let mut parser = Parser::new(lines.next().unwrap()).unwrap();
        let listed: Vec<_> = lines.filter_map(|line| parser.line(line).unwrap()).collect();
        for entry in &listed {
            let content = fs::read(self.to(std::str::from_utf8(&entry.path).unwrap())).unwrap();
            assert_eq!(entry.size_bytes, content.len() as u64);
            assert_eq!(entry.digest, parser.algorithm().of_object(&content));
        }
        listed
    }

    fn names(&self) -> Vec<String> {
        self.listed().into_iter().map(|entry| String::from_utf8(entry.path).unwrap()).collect()
    }

    fn last_line(&self) -> String {
        fs::read_to_string(self.to(LIST)).unwrap().lines().last().unwrap().to_owned()
    }
}

#[test]
fn each_file_has_one_line_once_it_is_there_and_the_last_line_proves_the_list() {
    for way in [Way::Here, Way::Session] {
        let bench = Bench::listing();
        append(&bench.from("rested"), b"was there before");
        let job = bench.start(way, renamed(), DigestAlgorithm::Crc64Nvme);
        append(&bench.from("a.tmp"), &super::content(3, 2 << 20));
        bench.wait_for("it arrives", || bench.arrived_bytes() >= 2 << 20);
        fs::rename(bench.from("a.tmp"), bench.from("a")).unwrap();
        bench.wait_for("it is sealed", || bench.heard.has_sealed("a", 2 << 20));
        // Under the name that it has in the end.
        assert!(bench.names().contains(&"a".to_owned()), "{:?}", bench.names());
        append(&bench.from("a"), b"more");
        bench.wait_for("it is sealed again", || bench.heard.has_sealed("a", (2 << 20) + 4));
        assert_eq!(bench.listed().iter().filter(|entry| entry.path == b"a").count(), 1);
        bench.end(job);
        let mut names = bench.names();
        names.sort();
        assert_eq!(names, ["STOP", "a", "rested"]);
        let text = fs::read(bench.to(LIST)).unwrap();
        let before = &text[..text.len() - bench.last_line().len() - 1];
        let digest = DigestAlgorithm::Crc64Nvme.of_object(before);
        assert_eq!(bench.last_line(), format!("# closed files=3 bytes={} crc64nvme={digest}", before.len()));
    }
}

#[test]
fn a_later_attempt_completes_the_list_that_an_earlier_one_left_torn() {
    let bench = Bench::listing();
    for name in ["kept", "lost", "changed"] {
        append(&bench.from(name), name.as_bytes());
    }
    let job = bench.start(Way::Session, renamed(), DigestAlgorithm::Blake3);
    let lines = || fs::read(bench.to(LIST)).map_or(0, |text| text.iter().filter(|byte| **byte == b'\n').count());
    bench.wait_for("all are listed", || lines() == 4);
    bench.stop.store(true, Relaxed);
    job.join().unwrap();
    // As after a crash between a file's name and its line, and in the middle of a line.
    let text = fs::read_to_string(bench.to(LIST)).unwrap();
    let kept: Vec<&str> = text.lines().filter(|line| !line.ends_with(" lost")).collect();
    fs::write(bench.to(LIST), format!("{}\n0123456789abcdef 4 lo", kept.join("\n"))).unwrap();
    // Of the same size and time as its line says: what was published last before a crash is read again.
    let time = fs::metadata(bench.to("changed")).unwrap().modified().unwrap();
    for path in [bench.from("changed"), bench.to("changed")] {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(b"CHANGED", 0).unwrap();
        file.set_modified(time).unwrap();
    }

    let again = bench.again();
    let again = Bench { stop: Default::default(), ..again };
    let job = again.start(Way::Session, renamed(), DigestAlgorithm::Blake3);
    again.end(job);
    let mut names = again.names();
    names.sort();
    assert_eq!(names, ["STOP", "changed", "kept", "lost"]);
    assert!(again.last_line().starts_with("# closed files=4 bytes="), "{}", again.last_line());
    assert!(!fs::read_to_string(again.to(LIST)).unwrap().contains("0123456789abcdef 4 lo"));
}

#[test]
fn a_list_takes_nobodys_place_and_nobody_takes_its() {
    let bench = Bench::listing();
    append(&bench.from(LIST), b"a file of this name");
    append(&bench.from("b"), b"b");
    let job = bench.start(Way::Session, renamed(), DigestAlgorithm::Crc64Nvme);
    bench.wait_for("it is refused", || !bench.heard.failures.lock().unwrap().is_empty());
    let report = bench.end(job);
    assert_eq!(report.snapshot.counts.files_failed, 1);
    assert_eq!(bench.names().len(), 2, "b and STOP");

    for is_link in [false, true] {
        let bench = Bench::listing();
        let theirs = bench.dir.path().join("theirs");
        fs::write(&theirs, b"mine, and no list\n").unwrap();
        match is_link {
            true => std::os::unix::fs::symlink(&theirs, bench.to(LIST)).unwrap(),
            false => _ = fs::copy(&theirs, bench.to(LIST)).unwrap(),
        }
        File::create(bench.from("STOP")).unwrap();
        let report = bench.start(Way::Session, renamed(), DigestAlgorithm::Crc64Nvme).join().unwrap();
        assert!(format!("{:?}", report.ending).contains("the list of what is complete cannot be written"));
        assert_eq!(fs::read(&theirs).unwrap(), b"mine, and no list\n");
        assert_eq!(fs::read(bench.to(LIST)).unwrap(), b"mine, and no list\n");
    }
}
