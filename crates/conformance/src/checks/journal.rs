//! Large objects: chunks from several threads, and journals by which a later attempt goes on.

use crate::Ability::{AnyOrder, InOrder, Journals, Keeps, ReadsStaged, Sink, Stages};
use crate::check::{Check, Fault, ensure};
use crate::job::{Attempt, STEM, content, name};
use crate::stand::Place;
use model::{Entry, Extent, ObjectId};
use std::sync::Arc;
use store::{PublishRule, StagedFile};

pub const CHECKS: &[Check] = &[
    Check {
        name: "chunks-in-any-order",
        says: "chunks that several threads write in any order end up where they belong",
        takes: &[Sink, Keeps, AnyOrder],
        run: any_order,
    },
    Check {
        name: "chunks-out-of-order-are-refused",
        says: "where bytes have to come in order, those that do not are refused, and the object can still be completed",
        takes: &[Sink, Keeps, InOrder],
        run: refuses_disorder,
    },
    Check {
        name: "staged-is-readable",
        says: "what was written of a large object can be read back at any offset before it is published",
        takes: &[Sink, Keeps, Journals, ReadsStaged],
        run: staged_is_readable,
    },
    Check {
        name: "journal-is-found-again",
        says: "a later attempt under the same stem finds the journal as it was appended, and the data that it speaks of",
        takes: &[Sink, Keeps, Journals],
        run: found_again,
    },
    Check {
        name: "journal-is-foretold",
        says: "that a journal is there is known without opening it: before, no; after an attempt broke off, yes",
        takes: &[Sink, Keeps, Journals],
        run: foretold,
    },
    Check {
        name: "journal-is-cut",
        says: "a journal that is cut keeps its beginning, and what is appended then follows that",
        takes: &[Sink, Keeps, Journals],
        run: cut,
    },
    Check {
        name: "journal-belongs-to-its-stem",
        says: "under another stem nothing of a journal is found",
        takes: &[Sink, Keeps, Journals],
        run: other_stem,
    },
    Check {
        name: "journal-ends-with-its-object",
        says: "after publishing or discarding, the next attempt under the stem begins without a journal",
        takes: &[Sink, Keeps, Journals],
        run: ends,
    },
    Check {
        name: "journal-survives-several-attempts",
        says: "each of three attempts appends to what those before it left, and the last publishes the whole",
        takes: &[Sink, Keeps, Journals],
        run: several_attempts,
    },
    Check {
        name: "sealed-extents-are-found-again",
        says: "what was put down with a sealed extent stands in the journal of the next attempt, and the extent can be read",
        takes: &[Sink, Keeps, Journals],
        run: sealed_extents,
    },
    Check {
        name: "settled-is-whole-and-invisible",
        says: "a large object that is settled cannot be seen before it is published, and is whole then",
        takes: &[Sink, Keeps, Stages],
        run: settled,
    },
];

const FILE: &[u8] = b"file";
/// Parts of memory that comes in order divide it.
const CHUNK: usize = 1 << 16;

fn described(job: &Attempt, size: usize) -> Entry {
    job.file(ObjectId::ROOT, name("file"), size)
}

fn any_order(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let bytes = content(1, 20 * CHUNK + 777);
    let entry = described(&job, bytes.len());
    let file = job.begin(&entry)?;
    let chunks: Vec<_> = bytes.chunks(CHUNK).enumerate().collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let (chunks, file) = (&chunks, &file);
                let mine = move |(number, _): &&(usize, &[u8])| number % 4 == thread;
                scope.spawn(move || {
                    let write = |(number, chunk): &(usize, &[u8])| {
                        let (head, tail) = chunk.split_at(chunk.len() / 3);
                        file.write_at((number * CHUNK + head.len()) as u64, tail)?;
                        file.write_at((number * CHUNK) as u64, head)
                    };
                    chunks.iter().rev().filter(mine).try_for_each(write)
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a writer returns"))
    })?;
    file.publish(&entry, PublishRule::NoReplace)?;
    ensure!(place.content(FILE)?.as_ref() == Some(&bytes), "bytes are not where they were written");
    drop(file);
    job.close(place)
}

fn refuses_disorder(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let bytes = content(1, 3 * CHUNK + 5);
    let entry = described(&job, bytes.len());
    let file = job.begin(&entry)?;
    file.write_at(0, &bytes[..CHUNK])?;
    ensure!(file.write_at(2 * CHUNK as u64, &bytes[2 * CHUNK..]).is_err(), "bytes behind a gap were taken");
    ensure!(file.write_at(0, &bytes[..CHUNK]).is_err(), "bytes were taken a second time");
    file.write_at(CHUNK as u64, &bytes[CHUNK..])?;
    file.publish(&entry, PublishRule::NoReplace)?;
    ensure!(place.content(FILE)?.as_ref() == Some(&bytes), "other bytes are there");
    drop(file);
    job.close(place)
}

fn staged_is_readable(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let bytes = content(1, 3 * CHUNK);
    let file = job.begin(&described(&job, bytes.len()))?;
    for (number, chunk) in bytes.chunks(CHUNK).enumerate() {
        file.write_at((number * CHUNK) as u64, chunk)?;
    }
    for (start, end) in [(0, 100), (CHUNK - 50, CHUNK + 50), (2 * CHUNK, 3 * CHUNK)] {
        let mut buffer = vec![0; end - start];
        let read = file.read_at(start as u64, &mut buffer)?;
        ensure!(read == buffer.len() && buffer == bytes[start..end], "other bytes came from {start} to {end}");
    }
    file.discard();
    drop(file);
    job.close(place)
}

fn sealed_extents(place: &dyn Place) -> Result<(), Fault> {
    let bytes = content(1, 2 * CHUNK);
    let job = Attempt::at(place)?;
    let file = job.begin(&described(&job, bytes.len()))?;
    for (number, record) in [&b"the first, "[..], b"the second"].into_iter().enumerate() {
        let extent = Extent::new((number * CHUNK) as u64, ((number + 1) * CHUNK) as u64);
        file.write_at(extent.start, &bytes[number * CHUNK..(number + 1) * CHUNK])?;
        file.seal_extent(extent, record)?;
    }
    file.seal_extent(Extent::new(0, CHUNK as u64), b"")?;
    file.checkpoint()?;
    drop(file);
    job.end();
    let job = Attempt::at(place)?;
    let (file, journal) = go_on(&job, bytes.len())?;
    ensure!(journal == b"the first, the second", "the journal says {:?}", journal.escape_ascii().to_string());
    let mut held = vec![0; bytes.len()];
    let read = file.read_at(0, &mut held)?;
    ensure!(read == held.len() && held == bytes, "what was sealed is not there");
    file.discard();
    drop(file);
    job.close(place)
}

fn settled(place: &dyn Place) -> Result<(), Fault> {
    let bytes = content(1, 2 * CHUNK + 9);
    let job = Attempt::at(place)?;
    let entry = described(&job, bytes.len());
    let file = job.begin(&entry)?;
    file.write_at(0, &bytes)?;
    file.seal_extent(Extent::new(0, bytes.len() as u64), b"")?;
    file.settle(bytes.len() as u64)?;
    ensure!(place.content(FILE)?.is_none(), "it can be seen before it is published");
    file.publish(&entry, PublishRule::NoReplace)?;
    ensure!(place.content(FILE)?.as_ref() == Some(&bytes), "it is not what was settled");
    drop(file);
    job.close(place)
}

/// Writes the beginning of an object, notes it, and breaks off as an attempt does whose session was lost.
fn break_off(place: &dyn Place, bytes: &[u8], written: usize, note: &[u8]) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let file = job.begin(&described(&job, bytes.len()))?;
    file.write_at(0, &bytes[..written])?;
    file.append_journal(note)?;
    file.checkpoint()?;
    drop(file);
    job.end();
    Ok(())
}

fn go_on(job: &Attempt, size: usize) -> Result<(Arc<dyn StagedFile>, Vec<u8>), Fault> {
    Ok(job.sink.begin(&described(job, size), STEM)?)
}

fn found_again(place: &dyn Place) -> Result<(), Fault> {
    let bytes = content(1, 4 * CHUNK + 9);
    break_off(place, &bytes, 2 * CHUNK, b"two chunks are here")?;
    ensure!(place.content(FILE)?.is_none(), "what was broken off can be seen");
    let job = Attempt::at(place)?;
    let (file, journal) = go_on(&job, bytes.len())?;
    ensure!(journal == b"two chunks are here", "the journal says {:?}", journal.escape_ascii().to_string());
    let mut held = vec![0; 2 * CHUNK];
    let read = file.read_at(0, &mut held)?;
    ensure!(read == held.len() && held == bytes[..read], "the data that the journal speaks of is not there");
    file.write_at(2 * CHUNK as u64, &bytes[2 * CHUNK..])?;
    file.publish(&described(&job, bytes.len()), PublishRule::NoReplace)?;
    ensure!(place.content(FILE)?.as_ref() == Some(&bytes), "what two attempts wrote is not the whole");
    drop(file);
    job.close(place)
}

fn foretold(place: &dyn Place) -> Result<(), Fault> {
    let bytes = content(1, 2 * CHUNK);
    let job = Attempt::at(place)?;
    ensure!(!job.sink.has_journal(&described(&job, bytes.len()), STEM), "a journal is told of that nobody wrote");
    job.close(place)?;
    break_off(place, &bytes, CHUNK, b"one chunk is here")?;
    let job = Attempt::at(place)?;
    ensure!(job.sink.has_journal(&described(&job, bytes.len()), STEM), "the journal is not told of");
    let (file, _) = go_on(&job, bytes.len())?;
    file.discard();
    drop(file);
    job.close(place)
}

fn cut(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let bytes = content(1, CHUNK);
    let file = job.begin(&described(&job, bytes.len()))?;
    file.write_at(0, &bytes)?;
    file.append_journal(b"one two")?;
    file.append_journal(b" three")?;
    file.truncate_journal(4)?;
    file.append_journal(b"four")?;
    file.checkpoint()?;
    drop(file);
    job.end();
    let job = Attempt::at(place)?;
    let (file, journal) = go_on(&job, bytes.len())?;
    ensure!(journal == b"one four", "the journal says {:?}", journal.escape_ascii().to_string());
    file.discard();
    drop(file);
    job.close(place)
}

fn other_stem(place: &dyn Place) -> Result<(), Fault> {
    let bytes = content(1, 2 * CHUNK);
    break_off(place, &bytes, CHUNK, b"one chunk is here")?;
    let job = Attempt::at(place)?;
    let entry = described(&job, bytes.len());
    ensure!(!job.sink.has_journal(&entry, "another0stem"), "a journal is told of under another stem");
    let (other, journal) = job.sink.begin(&entry, "another0stem")?;
    ensure!(journal.is_empty(), "another stem has the journal");
    other.discard();
    let (own, journal) = go_on(&job, bytes.len())?;
    ensure!(!journal.is_empty(), "the other stem's end took the journal away");
    own.discard();
    drop((own, other));
    job.close(place)
}

fn ends(place: &dyn Place) -> Result<(), Fault> {
    let bytes = content(1, 2 * CHUNK);
    for is_published in [true, false] {
        let job = Attempt::at(place)?;
        let entry = described(&job, bytes.len());
        let file = job.begin(&entry)?;
        file.write_at(0, &bytes)?;
        file.append_journal(b"all of it is here")?;
        match is_published {
            true => file.publish(&entry, PublishRule::Replace)?,
            false => file.discard(),
        }
        drop(file);
        job.close(place)?;
    }
    let job = Attempt::at(place)?;
    ensure!(!job.sink.has_journal(&described(&job, bytes.len()), STEM), "a journal is told of that has ended");
    let file = job.begin(&described(&job, bytes.len()))?;
    file.discard();
    drop(file);
    job.close(place)
}

fn several_attempts(place: &dyn Place) -> Result<(), Fault> {
    let bytes = content(1, 3 * CHUNK);
    for (number, chunk) in bytes.chunks(CHUNK).enumerate() {
        let job = Attempt::at(place)?;
        let (file, journal) = go_on(&job, bytes.len())?;
        ensure!(journal == [b'+'].repeat(number), "attempt {number} finds {:?}", journal.escape_ascii().to_string());
        file.write_at((number * CHUNK) as u64, chunk)?;
        file.append_journal(b"+")?;
        file.checkpoint()?;
        if number == 2 {
            file.publish(&described(&job, bytes.len()), PublishRule::NoReplace)?;
            drop(file);
            job.close(place)?;
        } else {
            drop(file);
            job.end();
        }
    }
    ensure!(place.content(FILE)?.as_ref() == Some(&bytes), "what three attempts wrote is not the whole");
    Ok(())
}
