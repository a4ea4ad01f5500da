//! Digests of objects and of chunks, for comparing what two sides have.

use crate::block::Block;
use crate::limits::BLOCK_BYTES;
use model::{ChunkHasher, Digest, DigestAlgorithm, Extent};
use store::SourceFile;

/// Reads an object of this length to its end. `None` when it turned out to have another length, or `goes_on` said no.
pub fn of_file(
    file: &dyn SourceFile,
    size_bytes: u64,
    algorithm: DigestAlgorithm,
    goes_on: &dyn Fn() -> bool,
) -> store::Result<Option<Digest>> {
    let mut hasher = ChunkHasher::new(algorithm, 0);
    let mut buffer = Block::new(BLOCK_BYTES.min(size_bytes as usize + 1));
    let mut at = 0;
    loop {
        let got = file.read_at(at, &mut buffer)?;
        at += got as u64;
        if got == 0 || at > size_bytes || !goes_on() {
            break;
        }
        hasher.update(&buffer[..got]);
        if got < buffer.len() {
            break;
        }
    }
    Ok((at == size_bytes && goes_on()).then(|| hasher.finish(true)))
}

/// Where the chunk of this number lies in an object of several.
pub fn chunk_at(number: u64, chunk_bytes: u64, size_bytes: u64) -> Extent {
    Extent::new(number * chunk_bytes, (number * chunk_bytes + chunk_bytes).min(size_bytes))
}

/// Reads a chunk of an object of several, and hands its blocks on with their places. `None` when the object ends before it,
/// or `each` said no.
pub fn of_chunk(
    file: &dyn SourceFile,
    extent: Extent,
    algorithm: DigestAlgorithm,
    each: &mut dyn FnMut(u64, &[u8]) -> store::Result<bool>,
) -> store::Result<Option<Digest>> {
    let mut hasher = ChunkHasher::new(algorithm, extent.start);
    let mut buffer = Block::new(BLOCK_BYTES);
    let mut at = extent.start;
    while at < extent.end {
        let wanted = buffer.len().min((extent.end - at) as usize);
        let block = &mut buffer[..wanted];
        if file.read_at(at, block)? < wanted || !each(at, block)? {
            return Ok(None);
        }
        hasher.update(block);
        at += wanted as u64;
    }
    Ok(Some(hasher.finish(false)))
}
