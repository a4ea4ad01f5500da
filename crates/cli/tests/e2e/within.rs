//! Copies within a host: holes stay holes, the kernel copies where nobody asked for more, and the result says what was read.

use crate::bed::{Bed, Ran, behind, noise};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// A file of this size with some noise at each of these offsets.
fn write_sparse(bed: &Bed, below: &str, size_bytes: u64, data: &[(u64, usize)]) {
    let file = File::create(bed.write(below, b"")).unwrap();
    file.set_len(size_bytes).unwrap();
    for (at, bytes) in data {
        file.write_all_at(&noise(*bytes, *at), *at).unwrap();
    }
}

fn allocated_bytes(path: &Path) -> u64 {
    // What a file takes is settled when it is written out.
    File::open(path).unwrap().sync_all().unwrap();
    fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn holes_are_not_read_and_are_holes_again_whatever_is_verified() {
    let bed = Bed::new();
    write_sparse(&bed, "t/large", 300 << 20, &[(0, 5), (17 << 20, 3 << 20), (100 << 20, 70_000)]);
    write_sparse(&bed, "t/ends-in-data", 64 << 20, &[((64 << 20) - 4096, 4096)]);
    write_sparse(&bed, "t/middling", 3 << 20, &[(1 << 20, 9000)]);
    write_sparse(&bed, "t/empty", 40 << 20, &[]);
    write_sparse(&bed, "t/odd", (20 << 20) + 77, &[((9 << 20) + 5, 1)]);
    let ways =
        [&["--digest", "crc64nvme"][..], &["--digest", "blake3"], &["--verify", "reread"], &["--verify", "none"]];
    for (i, more) in ways.iter().enumerate() {
        let to = format!("copy{i}");
        let manifest = format!("manifest{i}");
        let mut args = vec!["cp", "--json", "t/", &to[..]];
        args.extend_from_slice(more);
        if !more.contains(&"none") {
            args.extend_from_slice(&["--manifest", &manifest]);
        }
        let done = bed.run(&args).succeeded().done();
        assert_eq!((&done["files"]["ok"], &done["bytes"]), (&5.into(), &((427u64 << 20) + 77).into()), "{more:?}");
        bed.run(&["check", "--digest", "blake3", "t", &to]).succeeded();
        if !more.contains(&"none") {
            bed.run(&["sum", "-c", &manifest, &to]).succeeded();
        }
        for entry in fs::read_dir(bed.path("t")).unwrap() {
            let name = entry.unwrap().file_name();
            let [from, there] = ["t", &to].map(|tree| allocated_bytes(&bed.path(tree).join(&name)));
            assert!(there <= from + (64 << 10), "{name:?} {more:?}: {there} bytes instead of {from}");
        }
    }
}

#[test]
fn what_nobody_digested_is_not_called_verified() {
    let bed = Bed::new();
    for (below, bytes) in [("t/small", 1000), ("t/middling", 1 << 20), ("t/large", (21 << 20) + 3)] {
        bed.write(below, &noise(bytes, bytes as u64));
    }
    let ran = bed.run(&["cp", "--verify", "none", "t/", "copy"]).succeeded();
    assert!(ran.stderr.contains("not verified") && !ran.stderr.contains("verified by"), "{}", ran.stderr);
    let done = bed.run(&["cp", "--json", "--verify", "none", "t/", "again"]).succeeded().done();
    assert_eq!(done["verify"], "none");
    let ran = bed.run(&["cp", "t/", "read"]).succeeded();
    let is_cloned = ran.stderr.contains("cloned");
    assert!(ran.stderr.contains("verified by crc64nvme"), "{}", ran.stderr);
    let done = bed.run(&["cp", "--json", "t/", "read-again"]).succeeded().done();
    assert_eq!(done["cloned_bytes"].as_u64().unwrap() > 0, is_cloned, "{done}");
    assert_eq!(done["kernel_copied_bytes"], 0);
    let done = bed.run(&["cp", "--json", "--engine", "pread", "t/", "second"]).succeeded().done();
    assert_eq!((&done["cloned_bytes"], &done["verify"]), (&0.into(), &"crc64nvme".into()));
    for to in ["copy", "again", "read", "read-again", "second"] {
        bed.run(&["check", "t", to]).succeeded();
    }
}

#[test]
fn nothing_goes_unverified_between_hosts_or_into_a_manifest() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("f", b"f");
    for (args, why) in [
        (&["f", "lab:f"][..], "between hosts everything is verified"),
        (&["lab:g", "."], "between hosts everything is verified"),
        (&["--manifest", "m", "f", "g"], "a manifest lists digests"),
    ] {
        let ran = bed.run(&[&["cp", "--verify", "none"], args].concat());
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        assert!(ran.error().contains(why) && ran.stderr.contains("omit --verify none"), "{}", ran.stderr);
    }
    assert!(!bed.path("root/f").exists() && !bed.path("g").exists());
}

/// Runs a script with mounts of its own, which end with it; its `$0` is the program.
fn in_own_mounts(bed: &Bed, script: &str) -> Ran {
    bed.finish(behind(&["unshare", "--mount", "sh", "-c", script], &bed.command("client", &[""; 0])))
}

/// Below a file system of its own, in a namespace that ends with it: a copy, one that must not share, one of a file that both
/// then change, and a large one on next to no room.
const ON_A_FILE_SYSTEM: &str = r#"
set -e
mount -o loop image at
head -c 41943047 /dev/urandom > at/large
head -c 1048577 /dev/urandom > at/middling
"$0" cp --json at/large at/middling at/cloned/ > cloned
"$0" cp --json --engine pread at/large at/second > second
"$0" cp --json --manifest manifest at/large at/listed > listed
"$0" cp --json at/large out > out.json
cmp at/large at/cloned/large; cmp at/middling at/cloned/middling; cmp at/large at/second; cmp at/large out
printf x | dd of=at/cloned/large bs=1 seek=9000000 conv=notrunc 2> /dev/null
cmp at/large at/second
rm at/second at/listed
# What is left is less than the file is long.
sync
head -c $(( ($(df --output=avail -k at | tail -n 1) - 20000) * 1024 )) /dev/zero > at/filler
"$0" cp --json at/large at/tight/ > tight
cmp at/large at/tight/large
"#;

#[test]
fn a_file_system_that_shares_blocks_is_asked_to_and_the_result_says_so() {
    for (make, more) in [("mkfs.xfs", &["-q"][..]), ("mkfs.btrfs", &["-q", "--mixed"])] {
        let bed = Bed::new();
        let image = File::create(bed.path("image")).unwrap();
        image.set_len(320 << 20).unwrap();
        if !needs::root() || !needs::program(make) {
            continue;
        }
        let made = std::process::Command::new(make).args(more).arg(bed.path("image")).status();
        assert!(made.unwrap().success(), "{make}");
        fs::create_dir(bed.path("at")).unwrap();
        let ran = in_own_mounts(&bed, ON_A_FILE_SYSTEM);
        assert_eq!(ran.code, Some(0), "{make}: {}", ran.stderr);
        let done = |name: &str| -> serde_json::Value {
            let text = fs::read_to_string(bed.path(name)).unwrap();
            serde_json::from_str(text.lines().last().unwrap()).unwrap()
        };
        let all = 41_943_047 + 1_048_577;
        assert_eq!((&done("cloned")["cloned_bytes"], &done("cloned")["bytes"]), (&all.into(), &all.into()), "{make}");
        for copied in ["second", "listed", "out.json"] {
            assert_eq!(done(copied)["cloned_bytes"], 0, "{make} {copied}");
        }
        assert_eq!(done("tight")["cloned_bytes"], 41_943_047, "{make}");
    }
}

/// A file system whose word on holes is not taken: everything is read, and what is zeros becomes a hole.
const ON_ONE_THAT_IS_NOT_TRUSTED: &str = r#"
set -e
mount -t ramfs thalweg-e2e at
truncate -s 40M at/large
printf x | dd of=at/large bs=1 seek=30000000 conv=notrunc 2> /dev/null
truncate -s 2000003 at/middling
"$0" cp --json at/large at/middling out/ > done
cmp at/large out/large; cmp at/middling out/middling
"#;

#[test]
fn where_holes_cannot_be_trusted_everything_is_read_and_zeros_are_left_out() {
    if !needs::root() {
        return;
    }
    let bed = Bed::new();
    fs::create_dir(bed.path("at")).unwrap();
    let ran = in_own_mounts(&bed, ON_ONE_THAT_IS_NOT_TRUSTED);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for name in ["large", "middling"] {
        let bytes = allocated_bytes(&bed.path("out").join(name));
        assert!(bytes <= 256 << 10, "{name} takes {bytes} bytes");
    }
}
