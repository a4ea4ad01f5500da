//! Manifests: written by a copy, by `sum` and by `gen`, and verified.

use crate::bed::{Bed, contents, noise};
use std::collections::BTreeSet;
use std::fs;

fn lines(text: &str) -> BTreeSet<String> {
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_manifest_of_a_copy_verifies_the_copy_and_finds_one_flipped_bit() {
    let (bed, _server) = Bed::with_endpoint();
    for (i, bytes) in [0, 10, 70_000, 9 << 20].into_iter().enumerate() {
        bed.write(&format!("t/{i}"), &noise(bytes, i as u64));
    }
    for digest in ["crc64nvme", "blake3"] {
        let pushed = format!("lab:{digest}");
        bed.run(&["cp", "--digest", digest, "--manifest", "pushed", "t/", &pushed]).succeeded();
        bed.run(&["cp", "--digest", digest, "--manifest", "pulled", &format!("{pushed}/"), digest]).succeeded();
        bed.run(&["cp", "--digest", digest, "--manifest", "copied", "t/", &format!("copy-{digest}")]).succeeded();
        let listed = String::from_utf8(bed.run(&["sum", "--digest", digest, "t/"]).succeeded().stdout).unwrap();
        assert!(listed.starts_with(&format!("# thalweg manifest 1 {digest}\n")));
        for manifest in ["pushed", "pulled", "copied"] {
            assert_eq!(lines(&fs::read_to_string(bed.path(manifest)).unwrap()), lines(&listed), "{manifest} {digest}");
        }
        bed.run(&["sum", "-c", "pushed", digest]).succeeded();
        let path = bed.path(digest).join("3");
        let mut bytes = fs::read(&path).unwrap();
        bytes[5_000_000] ^= 0x10;
        fs::write(&path, bytes).unwrap();
        let ran = bed.run(&["sum", "-c", "pushed", digest]);
        assert_eq!((ran.code, &ran.stdout[..]), (Some(1), &b"3: FAILED (content differs)\n"[..]));
        assert_eq!(ran.error(), "error: 1 file differs from the manifest\nhint: copy these files again");
    }
    // It would be copied before it is complete, and what is written beside it as well.
    for source in ["t", "t/"] {
        let ran = bed.run(&["cp", "--manifest", "t/m", source, "lab:other/"]);
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        assert!(ran.error().contains(&format!("t/m is inside {source}, and would be copied")), "{}", ran.stderr);
    }
    assert!(!bed.path("root/other").exists() && fs::read_dir(bed.path("t")).unwrap().count() == 4);
    let left = fs::read_dir(bed.dir.path())
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().as_encoded_bytes().starts_with(b".thalweg-manifest"));
    assert_eq!(left.count(), 0);
}

#[test]
fn a_list_that_names_nothing_confirms_nothing() {
    let bed = Bed::new();
    bed.write("t/a", b"12345");
    fs::create_dir(bed.path("empty")).unwrap();
    let listed = bed.run(&["sum", "empty/"]).succeeded().stdout;
    assert_eq!(listed, b"# thalweg manifest 1 crc64nvme\n");
    bed.write("m", &listed);
    let ran = bed.run(&["sum", "-c", "m", "t"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.error().contains("names no files, so nothing was checked"), "{}", ran.error());
    let refused = bed.run(&["sum", "nothing-here/"]);
    assert_ne!(refused.code, Some(0));
    assert_eq!(refused.stdout, b"");
}

#[test]
fn missing_shorter_and_strange_files_are_told_apart() {
    let bed = Bed::new();
    for name in ["a", "b", "c", "d"] {
        bed.write(&format!("t/{name}"), b"12345");
    }
    let listed = bed.run(&["sum", "t/"]).succeeded().stdout;
    bed.write("m", &listed);
    fs::remove_file(bed.path("t/a")).unwrap();
    let ran = bed.run(&["sum", "-c", "m", "t"]);
    assert_eq!((ran.code, &ran.stdout[..]), (Some(23), &b"a: FAILED (missing)\n"[..]));
    fs::write(bed.path("t/b"), b"123").unwrap();
    fs::remove_file(bed.path("t/c")).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(bed.path("t/c")).unwrap();
    let ran = bed.run(&["sum", "-c", "m", "t"]);
    let said = lines(&String::from_utf8(ran.stdout).unwrap());
    assert_eq!(ran.code, Some(1));
    assert!(said.contains("b: FAILED (3 bytes long, not 5)"), "{said:?}");
    assert_eq!(said.len(), 3, "{said:?}");
    drop(socket);
}

#[test]
fn names_of_any_bytes_go_through_a_manifest() {
    use std::os::unix::ffi::OsStrExt;
    let bed = Bed::new();
    fs::create_dir(bed.path("t")).unwrap();
    for name in [&b"new\nline"[..], b"\xff", b"back\\slash", b"sp ace "] {
        fs::write(bed.path("t").join(std::ffi::OsStr::from_bytes(name)), name).unwrap();
    }
    let listed = bed.run(&["sum", "t"]).succeeded().stdout;
    bed.write("m", &listed);
    let ran = bed.run(&["sum", "-c", "m"]).succeeded();
    assert!(ran.stderr.starts_with("4 files are as listed, "), "{}", ran.stderr);
}

#[test]
fn what_gen_lists_is_what_it_wrote() {
    let bed = Bed::new();
    bed.run(&["gen", "200x1KiB,3x300KiB", "set", "--manifest", "m"]).succeeded();
    bed.run(&["sum", "-c", "m", "set"]).succeeded();
    let dry = bed.run(&["gen", "tiny", "other", "--dry-run"]).succeeded();
    assert!(dry.stderr.starts_with("would write 50,000 files in "), "{}", dry.stderr);
    assert!(!bed.path("other").exists());
}

#[test]
fn a_dry_run_has_a_line_for_each_set_and_writes_nothing() {
    let bed = Bed::new();
    let ran = bed.run(&["gen", "bulk", "set", "--scale", "2^-10", "--dry-run"]).succeeded();
    let text = String::from_utf8(ran.stdout).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((rows.len(), rows[0][0]), (32, "set"));
    assert_eq!(rows[1][..5], ["bulk:1048576x1KiB", "1,024", "0", "3", "1.00"]);
    assert_eq!(rows[31][..6], ["bulk:1x1TiB", "1", "0", "1", "1.00", "GiB"]);
    assert!(ran.stderr.starts_with("would write 12,297 files in "), "{}", ran.stderr);
    let ran = bed.run(&["gen", "streaming:1GiB,tiny*2", "set", "--dry-run", "--json"]).succeeded();
    let done = ran.done();
    assert_eq!((done["files"].as_u64(), done["code"].as_u64()), (Some(101_024), Some(0)));
    assert_eq!(ran.events().len(), 3);
    assert_eq!(ran.events()[0]["name"], "streaming:1024x1GiB");
    assert!(!bed.path("set").exists());
}

#[test]
fn a_tree_with_odd_names_links_and_holes_is_delivered_and_verified() {
    let (bed, _server) = Bed::with_endpoint();
    bed.run(&["gen", "longtail@1/60", "set", "--manifest", "m"]).succeeded();
    let listed = fs::read_to_string(bed.path("m")).unwrap();
    assert!(listed.lines().filter(|line| line.starts_with("# link ")).count() >= 3, "{listed}");
    bed.run(&["sum", "-c", "m", "set"]).succeeded();
    bed.run(&["cp", "set/", "lab:copy"]).succeeded();
    assert_eq!(contents(&bed.path("set")), contents(&bed.path("root/copy")));
    bed.run(&["sum", "-c", "m", "root/copy"]).succeeded();
}

#[test]
fn what_gen_cannot_make_is_refused_with_a_reason_before_anything_is_written() {
    let bed = Bed::new();
    for (args, said) in [
        (["huge", "set", "--seed", "1"], "read data set \"huge\": neither large, medium, "),
        (["tiny", "set", "--scale", "3"], "read scale \"3\": give a fraction such as 2^-10, "),
        (["tiny", "set", "--content", "0.5"], "read content \"0.5\": give random, zero, or a ratio "),
        (["tiny", "set", "--repeat", "0"], "read data set \"tiny\": the repeat count must be "),
        (["bulk:3GiB", "set", "--seed", "1"], "read data set \"bulk:3GiB\": the sweep has no such set"),
    ] {
        let ran = bed.run(&[&["gen"], &args[..]].concat());
        assert_eq!(ran.code, Some(2), "{args:?}");
        assert!(ran.error().starts_with(&format!("error: {said}")), "{}", ran.error());
    }
    let ran = bed.run(&["gen", "bulk", "set"]);
    assert!(ran.error().starts_with("error: write a data set to set: needs 22"), "{}", ran.error());
    assert!(!bed.path("set").exists());
    bed.run(&["gen", "3x10", "set", "--manifest", "m"]).succeeded();
    let before = contents(&bed.path("set"));
    let ran = bed.run(&["gen", "3x10", "set", "--seed", "2"]);
    assert!(ran.error().contains("File exists"), "{}", ran.error());
    assert_eq!(contents(&bed.path("set")), before);
    assert!(bed.run(&["gen", "3x10", "other", "--manifest", "m"]).error().contains("File exists"));
}

#[test]
fn what_is_no_manifest_is_refused_with_the_line() {
    let bed = Bed::new();
    bed.write("m", b"hello\n");
    let ran = bed.run(&["sum", "-c", "m"]);
    assert_eq!(ran.code, Some(2));
    assert_eq!(
        ran.error(),
        "error: read manifest m: line 1: this is not a manifest (its first line must be `# thalweg manifest 1 crc64nvme` or \
         `... blake3`)\nhint: give a file written by `thalweg sum`, `gen`, `cp --manifest`, sha256sum, md5sum or b3sum"
    );
    bed.write("m", b"# thalweg manifest 1 crc64nvme\n0000000000000000 0 a\nrubbish\n");
    let ran = bed.run(&["sum", "-c", "m"]);
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.error().starts_with("error: read manifest m: line 3: not of the form `DIGEST SIZE PATH`"),
        "{}",
        ran.error()
    );
    let ran = bed.run(&["sum", "-c", "nosuch"]);
    assert_eq!(ran.error(), "error: open manifest nosuch: No such file or directory\nhint: check the path");
}
