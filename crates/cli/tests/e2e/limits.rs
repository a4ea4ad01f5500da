//! Bounds on a transfer: rate, amount, time, failures, and bytes on the wire. Counted are files, bytes and exit codes.

use crate::bed::{Bed, Ran, contents, noise};
use serde_json::Value;
use std::fs;
use std::process::Stdio;

const MIB: u64 = 1 << 20;

/// Push, pull and a copy on this host: source and destination as the command names them, and where they lie.
const WAYS: [[&str; 4]; 3] = [["s/", "lab:d", "s", "root/d"], ["lab:s/", "d", "root/s", "d"], ["s/", "d", "s", "d"]];

fn copy(bed: &Bed, flags: &[&str], way: &[&str; 4]) -> Ran {
    let args: Vec<&str> = ["cp", "--json"].into_iter().chain(flags.iter().copied()).chain([way[0], way[1]]).collect();
    bed.run(&args)
}

/// Half of it is noise and the other half one byte, in stretches of 8 KiB.
fn compressible(bytes: usize, seed: u64) -> Vec<u8> {
    let mut content = noise(bytes, seed);
    content.chunks_mut(16 << 10).for_each(|unit| {
        let middle = unit.len() / 2;
        unit[middle..].fill(seed as u8 | 1);
    });
    content
}

fn number(done: &Value, field: &str) -> u64 {
    done[field].as_u64().unwrap_or_else(|| panic!("{field} in {done}"))
}

#[test]
fn compressed_copies_arrive_as_they_were_with_half_the_bytes_on_the_wire() {
    for flag in ["-z", "-z=zstd", "-z=lz4", "--compress=auto"] {
        for way in &WAYS[..2] {
            let (bed, _server) = Bed::with_endpoint();
            bed.write(&format!("{}/large", way[2]), &compressible(20 << 20, 3));
            for i in 0..40 {
                bed.write(&format!("{}/small/{i}", way[2]), &compressible(20_000 + i * 3000, i as u64));
            }
            // The second one reads what storage holds.
            let more = if flag == "-z" { "--digest=blake3" } else { "--verify=reread" };
            let done = copy(&bed, &[flag, more], way).succeeded().done();
            assert_eq!(contents(&bed.path(way[2])), contents(&bed.path(way[3])), "{flag} {way:?}");
            let (sent, wire) = (number(&done, "sent_bytes"), number(&done, "wire_bytes"));
            // Auto may find that nothing is gained here, where the path is as fast as memory.
            let share_max = if flag == "-z" || flag == "--compress=auto" { 101 } else { 56 };
            assert!(wire * 100 < sent * share_max, "{flag} {way:?}: {wire} of {sent}");
            assert!(done["compression_ratio"].as_f64().unwrap() > 0.99, "{done}");
        }
    }
}

#[test]
fn what_does_not_compress_is_sent_as_it_is() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("s/noise", &noise(20 << 20, 1));
    for flag in ["-z", "-z=zstd", "-z=lz4"] {
        let done = copy(&bed, &[flag], &["s/", &format!("lab:{flag}"), "", ""]).succeeded().done();
        let (sent, wire) = (number(&done, "sent_bytes"), number(&done, "wire_bytes"));
        assert!(sent <= wire && wire * 1000 < sent * 1002, "{flag}: {wire} of {sent}");
        assert_eq!(contents(&bed.path("s")), contents(&bed.path(format!("root/{flag}"))));
    }
    let done = copy(&bed, &[], &["s/", "lab:plain", "", ""]).succeeded().done();
    assert_eq!((&done["compression"], &done["wire_bytes"]), (&"none".into(), &Value::Null));
    // Nothing crosses a network within one host: a flag is refused there, and a variable holds for other copies.
    let ran = bed.run(&["cp", "-z=zstd", "s/", "here"]);
    assert!(ran.code == Some(2) && ran.error().contains("--compress is for streams"), "{}", ran.stderr);
    let mut command = bed.command("client", &["cp", "--json", "s/", "here"]);
    command.env("THALWEG_COMPRESS", "zstd");
    let done = bed.finish(command).succeeded().done();
    assert_eq!(done["wire_bytes"], Value::Null);
}

#[test]
fn a_compressed_copy_that_was_stopped_goes_on_without_compression_and_the_other_way_round() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("s/large", &compressible(24 << 20, 9));
    let way = ["s/", "lab:d", "s", "root/d"];
    let stopped = copy(&bed, &["-z=zstd", "--max-transfer=8M", "--chunk-size=1M"], &way);
    assert_eq!(stopped.code, Some(8), "{}", stopped.stderr);
    let stopped = copy(&bed, &["--max-transfer=8M", "--chunk-size=1M"], &way);
    assert_eq!(stopped.code, Some(8), "{}", stopped.stderr);
    let done = copy(&bed, &["-z=lz4", "--chunk-size=1M"], &way).succeeded().done();
    assert_eq!(number(&done, "resumed_bytes"), 16 * MIB);
    assert_eq!(contents(&bed.path("s")), contents(&bed.path("root/d")));
}

#[test]
fn a_rate_is_kept_and_named_as_the_limit_on_every_way() {
    for way in &WAYS {
        let (bed, _server) = Bed::with_endpoint();
        bed.write(&format!("{}/f", way[2]), &noise(2 << 20, 5));
        // The same rate at any time of the week.
        let done = copy(&bed, &["--bwlimit", "00:00,1M 12:00,1M"], way).succeeded().done();
        // Nothing makes it faster than asked, however fast or slow the machine is.
        assert!(done["seconds"].as_f64().unwrap() >= 1.7, "{way:?}: {done}");
        assert_eq!(done["bottleneck"]["stage"], "limit", "{way:?}: {done}");
        assert_eq!(contents(&bed.path(way[2])), contents(&bed.path(way[3])));
    }
}

#[test]
fn no_run_sends_more_than_it_may_and_the_same_command_comes_to_the_end() {
    for way in &WAYS {
        let (bed, _server) = Bed::with_endpoint();
        for i in 0..40 {
            // Alone and in packs.
            bed.write(&format!("{}/{i}", way[2]), &noise(if i < 20 { 256 << 10 } else { 64 << 10 }, i as u64));
        }
        let total = (20 * 320) << 10;
        let mut sent = 0;
        for run in 0.. {
            let ran = copy(&bed, &["--max-transfer", "2M"], way);
            let done = ran.done();
            assert!(number(&done, "sent_bytes") <= 2 * MIB, "{way:?}: {done}");
            sent += number(&done, "sent_bytes");
            if ran.code == Some(0) {
                break;
            }
            assert_eq!((ran.code, &done["code"]), (Some(8), &8.into()), "{}", ran.stderr);
            assert!(ran.error().starts_with(
                "error: stopped at --max-transfer 2.00 MiB; what was verified is kept\nhint: the same command continues"
            ));
            assert!(number(&done, "sent_bytes") > 0 && run < 20, "it gets on: {done}");
        }
        // What was delivered once is not sent again.
        assert_eq!(sent, total, "{way:?}");
        assert_eq!(contents(&bed.path(way[2])), contents(&bed.path(way[3])), "{way:?}");
    }
}

#[test]
fn a_large_file_is_nowhere_to_be_seen_until_its_last_run() {
    for way in &WAYS {
        let (bed, _server) = Bed::with_endpoint();
        bed.write(&format!("{}/large", way[2]), &noise(10 << 20, 2));
        let flags = ["--max-transfer=4M", "--chunk-size=1M"];
        for resumed in [0, 4 * MIB] {
            let ran = copy(&bed, &flags, way);
            let done = ran.done();
            assert_eq!(ran.code, Some(8), "{}", ran.stderr);
            assert_eq!([number(&done, "sent_bytes"), number(&done, "resumed_bytes")], [4 * MIB, resumed], "{way:?}");
            assert!(!bed.path(way[3]).join("large").exists());
        }
        let done = copy(&bed, &flags, way).succeeded().done();
        assert_eq!([number(&done, "sent_bytes"), number(&done, "resumed_bytes")], [2 * MIB, 8 * MIB], "{way:?}");
        assert_eq!(contents(&bed.path(way[2])), contents(&bed.path(way[3])));
    }
}

#[test]
fn a_run_that_is_out_of_time_says_so_and_the_next_one_goes_on() {
    for way in &WAYS {
        let (bed, _server) = Bed::with_endpoint();
        bed.write(&format!("{}/f", way[2]), &noise(8 << 20, 5));
        // At this rate it would take two minutes.
        let ran = copy(&bed, &["--bwlimit=64K", "--max-duration=1s"], way);
        assert_eq!((ran.code, &ran.done()["code"]), (Some(10), &10.into()), "{}", ran.stderr);
        let error = ran.error();
        assert!(error.starts_with(
            "error: stopped at --max-duration 1.00 s; what was verified is kept\nhint: the same command continues"
        ));
        assert!(!bed.path(way[3]).join("f").exists());
        copy(&bed, &[], way).succeeded();
        assert_eq!(contents(&bed.path(way[2])), contents(&bed.path(way[3])));
    }
}

#[test]
fn failures_are_left_out_or_end_the_run_as_the_user_wants() {
    for way in &WAYS {
        let (bed, _server) = Bed::with_endpoint();
        bed.write(&format!("{}/a", way[2]), b"a file");
        bed.write(&format!("{}/large", way[2]), &noise(8 << 20, 5));
        bed.write(&format!("{}/a/in the way", way[3]), b"of a");
        let ran = copy(&bed, &["--fail-fast", "--bwlimit=64K"], way);
        assert_eq!(ran.code, Some(23), "{}", ran.stderr);
        assert!(ran.error().starts_with("error: stopped at the first failure (--fail-fast)\nhint: "), "{}", ran.stderr);
        assert!(!bed.path(way[3]).join("large").exists());
        for flags in [&["--keep-going"][..], &[]] {
            let ran = copy(&bed, flags, way);
            assert_eq!(ran.code, Some(23), "{}", ran.stderr);
            assert!(ran.error().starts_with("error: 1 file was not delivered\n"), "{}", ran.stderr);
            assert!(bed.path(way[3]).join("large").exists());
        }
    }
}

#[test]
fn an_attempt_that_stands_still_is_given_up_after_the_time_that_was_asked_for() {
    let (bed, server) = Bed::with_endpoint();
    bed.write("f", &noise(64 << 20, 1));
    let flags = ["cp", "--json", "--timeout", "1", "--retries=0", "--bwlimit=16MiB", "f", "lab:"];
    let mut command = bed.command("client", &flags);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    lines.find(|line| line.as_ref().unwrap().contains("\"progress\"")).unwrap().unwrap();
    let endpoint = rustix::process::Pid::from_raw(server.pid() as i32).unwrap();
    rustix::process::kill_process(endpoint, rustix::process::Signal::STOP).unwrap();
    lines.for_each(|line| drop(line.unwrap()));
    let ran = child.wait_with_output().unwrap();
    rustix::process::kill_process(endpoint, rustix::process::Signal::CONT).unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(5), "{said}");
    assert!(said.contains("nothing moved for "), "{said}");
    bed.run(&["cp", "f", "lab:"]).succeeded();
    assert_eq!(fs::read(bed.path("f")).unwrap(), fs::read(bed.path("root/f")).unwrap());
}

#[test]
fn limits_that_cannot_be_read_are_refused_with_an_example() {
    let bed = Bed::new();
    for (flag, says) in [
        ("--bwlimit=8:00", "not a rate"),
        ("--bwlimit=08:00,fast", "not a rate"),
        ("--bwlimit=25:00,1M", "timetable"),
        ("--compress=gzip", "gzip"),
        ("--max-transfer=much", "much"),
        ("--max-duration=soon", "soon"),
    ] {
        let ran = bed.run(&["cp", flag, "a", "b"]);
        assert_eq!(ran.code, Some(2), "{flag}: {}", ran.stderr);
        assert!(ran.stderr.contains(says) && ran.stderr.contains("hint: "), "{flag}: {}", ran.stderr);
    }
    bed.write("a", b"a");
    let ran = bed.run(&["cp", "-z", "--memory=1MiB", "a", "host:b"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.error().ends_with("hint: raise --memory, or omit -z"), "{}", ran.stderr);
}
