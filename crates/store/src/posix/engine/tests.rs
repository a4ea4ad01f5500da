//! What every engine must do alike, run against each of them.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::*;

const KINDS: [EngineKind; 3] = [EngineKind::PreadPwrite, EngineKind::UringDirect, EngineKind::UringBuffered];

/// Small, so that short files make many blocks and every depth is exhausted.
const SHAPE: Shape = Shape { block_bytes: 8192, depth: 3 };

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        bytes.extend_from_slice(&(state >> 16).to_le_bytes()[..6]);
    }
    bytes.truncate(len);
    bytes
}

/// On the disk rather than under `/tmp`, which may be memory, so that direct I/O is real where the host allows it.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/var/tmp").or_else(|_| tempfile::tempdir()).unwrap()
}

fn create(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap()
}

fn fill(writer: &mut dyn BlockWriter, bytes: &[u8]) -> usize {
    let buffer = writer.buffer().unwrap();
    let len = bytes.len().min(buffer.len());
    buffer[..len].copy_from_slice(&bytes[..len]);
    len
}

fn write_whole(writer: &mut dyn BlockWriter, file: &File, bytes: &[u8], start: u64) {
    let mut done = 0;
    while done < bytes.len() {
        let len = fill(writer, &bytes[done..]);
        writer.write(file.as_fd(), start + done as u64, len).unwrap();
        done += len;
    }
}

fn read_whole(reader: &mut dyn BlockReader, file: &File, start: u64, end: u64) -> io::Result<Vec<u8>> {
    reader.start(file.as_fd(), start, end)?;
    rest(reader)
}

fn rest(reader: &mut dyn BlockReader) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let block = reader.next()?;
        if block.is_empty() {
            return Ok(bytes);
        }
        bytes.extend_from_slice(block);
    }
}

#[test]
fn every_engine_writes_the_same_bytes() {
    let directory = directory();
    for kind in KINDS {
        let mut writer = writer(kind, SHAPE).unwrap();
        for (index, len) in [0, 1, 4095, 4096, 4097, 8192, 100_000, 24 * 8192].into_iter().enumerate() {
            for start in [0, 4096, 5] {
                let path = directory.path().join(format!("{kind:?}-{index}-{start}"));
                let file = create(&path);
                let bytes = pattern(len, index as u64);
                write_whole(&mut *writer, &file, &bytes, start);
                writer.drain().unwrap();
                let written = fs::read(&path).unwrap();
                let expected_len = if len == 0 { 0 } else { start as usize + len };
                assert_eq!(written.len(), expected_len, "{kind} {len} at {start}");
                assert!(written.ends_with(&bytes), "{kind} {len} at {start}");
                assert!(written[..expected_len - len].iter().all(|&byte| byte == 0));
            }
        }
    }
}

#[test]
fn every_engine_reads_the_same_extents() {
    let directory = directory();
    let path = directory.path().join("source");
    let bytes = pattern(150_001, 7);
    fs::write(&path, &bytes).unwrap();
    let file = File::open(&path).unwrap();
    for kind in KINDS {
        let mut reader = reader(kind, SHAPE).unwrap();
        for start in [0u64, 1, 4096, 8191, 150_000, 150_001, 200_000] {
            for end in [0u64, 1, 4096, 16384, 149_999, 150_001, 160_000, 1 << 40] {
                let read = read_whole(&mut *reader, &file, start, end).unwrap();
                let end_in_file = end.min(150_001) as usize;
                let expected = bytes.get(start as usize..end_in_file).unwrap_or(&[]);
                assert!(read == expected, "{kind} {start}..{end}: {} of {}", read.len(), expected.len());
            }
        }
    }
}

#[test]
fn files_may_be_closed_and_changed_while_their_blocks_are_in_flight() {
    let directory = directory();
    for kind in KINDS {
        let mut writer = writer(kind, SHAPE).unwrap();
        for round in 0..20u64 {
            // The descriptor, and after the removal the inode number, are given to the next file at once.
            let file = create(&directory.path().join(format!("{kind:?}-{round}")));
            write_whole(&mut *writer, &file, &pattern(30_000, round), 0);
            drop(file);
            if round % 3 == 1 {
                fs::remove_file(directory.path().join(format!("{kind:?}-{round}"))).unwrap();
            }
        }
        writer.drain().unwrap();
        for round in (0..20u64).filter(|round| round % 3 != 1) {
            let written = fs::read(directory.path().join(format!("{kind:?}-{round}"))).unwrap();
            assert!(written == pattern(30_000, round), "{kind} file {round}");
        }
    }
}

#[test]
fn a_reader_outlives_the_callers_descriptor() {
    let directory = directory();
    let path = directory.path().join("source");
    let bytes = pattern(100_000, 3);
    fs::write(&path, &bytes).unwrap();
    for kind in KINDS {
        let mut reader = reader(kind, SHAPE).unwrap();
        let file = File::open(&path).unwrap();
        reader.start(file.as_fd(), 10, 100_000).unwrap();
        drop(file);
        let mut read = Vec::new();
        loop {
            match reader.next().unwrap() {
                [] => break,
                block => read.extend_from_slice(block),
            }
        }
        assert!(read == bytes[10..], "{kind}");
    }
}

#[test]
fn a_new_start_forgets_the_extent_before() {
    let directory = directory();
    let path = directory.path().join("source");
    let bytes = pattern(200_000, 11);
    fs::write(&path, &bytes).unwrap();
    let file = File::open(&path).unwrap();
    for kind in KINDS {
        let mut reader = reader(kind, SHAPE).unwrap();
        reader.start(file.as_fd(), 0, 200_000).unwrap();
        assert_eq!(reader.next().unwrap(), &bytes[..8192], "{kind}");
        assert!(read_whole(&mut *reader, &file, 60_000, 90_000).unwrap() == bytes[60_000..90_000], "{kind}");
        reader.start(file.as_fd(), 0, 200_000).unwrap();
        reader.cancel();
        assert!(reader.next().unwrap().is_empty(), "{kind}");
    }
}

/// Extents of several files one after the other, each told of while the one before is read.
#[test]
fn an_extent_that_was_told_of_is_read_whether_it_is_gone_on_with_or_started() {
    let directory = directory();
    let contents = [pattern(100_000, 1), pattern(50_001, 2), pattern(3, 3), pattern(70_000, 4)];
    let path = |at: usize| directory.path().join(at.to_string());
    contents.iter().enumerate().for_each(|(at, bytes)| fs::write(path(at), bytes).unwrap());
    let files: Vec<_> = (0..contents.len()).map(|at| File::open(path(at)).unwrap()).collect();
    let extents = [(0, 0, 60_000), (0, 60_000, 100_000), (1, 1, 50_001), (2, 0, 3), (3, 4096, 70_000)];
    for kind in KINDS {
        let mut reader = reader(kind, SHAPE).unwrap();
        let mut gone_on = 0;
        for (at, (file, start, end)) in extents.into_iter().enumerate() {
            match reader.go_on() {
                true => gone_on += 1,
                false => reader.start(files[file].as_fd(), start, end).unwrap(),
            }
            if let Some((next, start, end)) = extents.get(at + 1) {
                reader.follow(files[*next].as_fd(), *start, *end).unwrap();
            }
            let read = rest(&mut *reader).unwrap();
            assert!(read == contents[file][start as usize..end as usize], "{kind}: {file} from {start}");
        }
        assert_eq!(gone_on, if kind == EngineKind::PreadPwrite { 0 } else { 4 }, "{kind}");
    }
}

#[test]
fn what_was_told_of_is_given_up_with_the_extent_before_it() {
    let directory = directory();
    let path = directory.path().join("source");
    let bytes = pattern(200_000, 11);
    fs::write(&path, &bytes).unwrap();
    let file = File::open(&path).unwrap();
    for kind in KINDS {
        let mut reader = reader(kind, SHAPE).unwrap();
        let begin = |reader: &mut dyn BlockReader, end: u64| {
            reader.start(file.as_fd(), 0, end).unwrap();
            reader.follow(file.as_fd(), 4096, 8192).unwrap();
        };
        begin(&mut *reader, 100_000);
        assert!(!reader.next().unwrap().is_empty() && !reader.go_on(), "{kind}: half-way");
        begin(&mut *reader, 100_000);
        reader.cancel();
        assert!(!reader.go_on(), "{kind}");
        // The file ends before the extent does.
        begin(&mut *reader, 300_000);
        assert!(rest(&mut *reader).unwrap() == bytes && !reader.go_on(), "{kind}");
        assert!(read_whole(&mut *reader, &file, 7, 9).unwrap() == bytes[7..9], "{kind}");
    }
}

#[test]
fn a_refused_write_is_reported_until_drained_and_then_forgotten() {
    let directory = directory();
    let path = directory.path().join("file");
    let file = create(&path);
    let read_only = File::open(&path).unwrap();
    for kind in KINDS {
        let mut writer = writer(kind, SHAPE).unwrap();
        fill(&mut *writer, &[1; 4096]);
        // The tail makes the direct engine use the caller's own open file description, too.
        let refused = writer.write(read_only.as_fd(), 0, 4097).and_then(|()| writer.drain()).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EBADF), "{kind}");
        let _ = writer.drain();
        write_whole(&mut *writer, &file, &pattern(20_000, 5), 0);
        writer.drain().unwrap();
        assert!(fs::read(&path).unwrap() == pattern(20_000, 5), "{kind}");
    }
}

#[test]
fn errors_surface_on_later_calls() {
    let directory = directory();
    let path = directory.path().join("file");
    create(&path);
    let read_only = File::open(&path).unwrap();
    for kind in KINDS {
        let mut writer = writer(kind, SHAPE).unwrap();
        let refused = (0..10).find_map(|_| {
            let lent = writer.buffer().map(|_| ());
            lent.and_then(|()| writer.write(read_only.as_fd(), 1, 4096)).err()
        });
        assert_eq!(refused.expect("more writes than depth").raw_os_error(), Some(libc::EBADF), "{kind}");
        assert!(writer.buffer().is_err(), "{kind}");
        assert!(writer.drain().is_err(), "{kind}");
        assert!(writer.buffer().is_ok(), "{kind}");
    }
}

#[test]
fn a_length_beyond_the_block_is_refused() {
    let directory = directory();
    let file = create(&directory.path().join("file"));
    for kind in KINDS {
        let mut writer = writer(kind, SHAPE).unwrap();
        assert!(writer.write(file.as_fd(), 0, 8193).is_err(), "{kind}");
        writer.drain().ok();
        writer.buffer().unwrap();
        assert!(writer.write(file.as_fd(), 0, 8193).is_err(), "{kind}");
        assert!(writer.write(file.as_fd(), u64::MAX, 1).is_err(), "{kind}");
    }
}

#[test]
fn reading_a_directory_is_an_error_and_the_reader_goes_on() {
    let directory = directory();
    fs::write(directory.path().join("file"), b"bytes").unwrap();
    let file = File::open(directory.path().join("file")).unwrap();
    let not_a_file = File::open(directory.path()).unwrap();
    for kind in KINDS {
        let mut reader = reader(kind, SHAPE).unwrap();
        assert!(read_whole(&mut *reader, &not_a_file, 0, 100).is_err(), "{kind}");
        assert!(reader.next().unwrap().is_empty());
        assert_eq!(read_whole(&mut *reader, &file, 0, 100).unwrap(), b"bytes");
    }
}

#[test]
fn engines_dropped_in_flight_leave_the_files_complete_up_to_the_last_write() {
    let directory = directory();
    for kind in KINDS {
        let path = directory.path().join(format!("{kind:?}"));
        let file = create(&path);
        let mut writer = writer(kind, SHAPE).unwrap();
        write_whole(&mut *writer, &file, &pattern(24_576, 9), 0);
        drop(writer);
        assert!(fs::read(&path).unwrap() == pattern(24_576, 9), "{kind}");
        let mut reader = reader(kind, SHAPE).unwrap();
        reader.start(file.as_fd(), 0, 24_576).unwrap();
        drop(reader);
    }
}

#[test]
fn an_engine_moves_to_another_thread_before_its_first_use() {
    let directory = directory();
    for kind in KINDS {
        let path = directory.path().join(format!("{kind:?}"));
        let file = create(&path);
        let (mut writer, mut reader) = (writer(kind, SHAPE).unwrap(), reader(kind, SHAPE).unwrap());
        let read = std::thread::spawn(move || {
            write_whole(&mut *writer, &file, &pattern(50_000, 2), 0);
            writer.drain().unwrap();
            read_whole(&mut *reader, &file, 0, 50_000).unwrap()
        });
        assert!(read.join().unwrap() == pattern(50_000, 2), "{kind}");
    }
}

/// Asked of the kernel, and not of the engines.
fn has_queue() -> bool {
    let made = io_uring::IoUring::new(2);
    needs::met(made.is_ok(), format!("no io_uring can be set up: {:?}", made.err()))
}

#[test]
fn the_direct_engine_is_direct_where_the_file_system_allows_it() {
    if !has_queue() {
        return;
    }
    let directory = directory();
    let file = create(&directory.path().join("file"));
    file.write_all_at(&[7; 8192], 0).unwrap();
    let allowed = direct::Target::new(file.as_fd(), Some(rustix::fs::OFlags::RDWR)).unwrap().1.is_none();
    let mut writer = writer(EngineKind::UringDirect, SHAPE).unwrap();
    write_whole(&mut *writer, &file, &[1; 8192], 0);
    writer.drain().unwrap();
    match writer.fallback() {
        None => assert!(allowed && writer.engine() == EngineKind::UringDirect),
        Some(fallback) => {
            assert!(!allowed && fallback.operation == "open with O_DIRECT", "{fallback}");
            assert_eq!((writer.engine(), fallback.used), (EngineKind::UringBuffered, EngineKind::UringBuffered));
        }
    }
}

#[test]
fn a_file_system_without_direct_io_is_served_through_the_page_cache_with_a_note() {
    let file = File::open("/proc/version").unwrap();
    let mut reader = reader(EngineKind::UringDirect, SHAPE).unwrap();
    let read = read_whole(&mut *reader, &file, 0, 4096).unwrap();
    assert!(read == fs::read("/proc/version").unwrap());
    if !has_queue() {
        return;
    }
    let fallback = reader.fallback().expect("a note");
    assert_eq!((reader.engine(), fallback.used), (EngineKind::UringBuffered, EngineKind::UringBuffered));
    assert_eq!(fallback.errno, libc::EINVAL);
    let text = fallback.to_string();
    assert!(text.starts_with("io_uring buffered instead of io_uring O_DIRECT: open with O_DIRECT: "), "{text}");
}

#[test]
fn a_queue_that_cannot_be_set_up_is_replaced_by_plain_calls_with_a_note() {
    // More than the address space holds.
    let shape = Shape { block_bytes: 1 << 45, depth: 128 };
    for kind in [EngineKind::UringDirect, EngineKind::UringBuffered] {
        let (writer, reader) = (writer(kind, shape).unwrap(), reader(kind, shape).unwrap());
        for (used, fallback) in [(writer.engine(), writer.fallback()), (reader.engine(), reader.fallback())] {
            let fallback = fallback.expect("a note");
            assert_eq!((used, fallback.used, fallback.wanted), (EngineKind::PreadPwrite, used, kind));
        }
        assert_eq!(writer.block_bytes(), Shape::of(EngineKind::PreadPwrite).block_bytes);
    }
}
