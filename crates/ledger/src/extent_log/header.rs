//! The header of an extent log: which version of which object, cut how, the log speaks of.
//!
//! Version 2 is written, versions 1 and 2 are read.
//!
//! Invariant: a header passes the same checks before it is written and after it was read.

use super::form::{Fields, OBJECT_BYTES_MAX, Unusable, VERSION, checksum};
use model::{DigestAlgorithm, Generation, JobId, Timestamp};

pub(super) const MAGIC: [u8; 4] = *b"TWXL";
const VERSION_1: u16 = 1;
/// PATH_MAX: no longer path can be opened in one call.
pub const NAME_BYTES_MAX: usize = 4096;
pub const STEM_BYTES_MAX: usize = 1024;
/// A BLAKE3 subtree needs at least 1 KiB.
const CHUNK_BYTES_MIN: u64 = 1 << 10;
const CHUNK_BYTES_MAX: u64 = 1 << 30;
const NANOSECONDS_MAX: u32 = 999_999_999;
/// Size, two times, inode and device.
const GENERATION_BYTES: usize = 48;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    pub algorithm: DigestAlgorithm,
    /// A power of two from 1 KiB to 1 GiB.
    pub chunk_bytes: u64,
    /// How long a log of version 1 says that its object is. Version 2 has no place for it.
    pub object_bytes: Option<u64>,
    /// What the source tells the object, or this version of it, from others by: 1 to `STEM_BYTES_MAX` bytes to compare.
    pub stem: Vec<u8>,
    /// The receiver's boot id when the log was started.
    pub boot: [u8; 16],
    pub job: JobId,
    /// Final path relative to the receiver's root: 1 to `NAME_BYTES_MAX` bytes, no NUL. A key to compare, never to open.
    pub name: Vec<u8>,
}

/// The stem of one version of an object: what the source told of it, in the layout that version 1 has for it.
pub fn stem_of(generation: &Generation) -> Vec<u8> {
    let mut stem = Vec::with_capacity(GENERATION_BYTES);
    stem.extend_from_slice(&generation.size_bytes.to_le_bytes());
    put_timestamp(&mut stem, generation.modified);
    put_timestamp(&mut stem, generation.version.changed());
    stem.extend_from_slice(&generation.version.object().to_le_bytes());
    stem.extend_from_slice(&generation.version.storage().to_le_bytes());
    stem
}

impl Header {
    /// True when chunks recorded under `other` are chunks of the object that `self` asks for. The job and the boot are
    /// not compared: another job that delivers the same version to the same name may continue.
    pub fn is_same_object(&self, other: &Header) -> bool {
        self.name == other.name
            && self.stem == other.stem
            && self.chunk_bytes == other.chunk_bytes
            && self.algorithm == other.algorithm
    }

    pub fn encode(&self) -> Result<Vec<u8>, Unusable> {
        self.check()?;
        if self.object_bytes.is_some() {
            return Err(Unusable::Field("object_bytes"));
        }
        let mut out = Vec::with_capacity(60 + self.stem.len() + self.name.len());
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.push(algorithm_number(self.algorithm));
        out.push(0);
        out.extend_from_slice(&self.chunk_bytes.to_le_bytes());
        out.extend_from_slice(&self.boot);
        out.extend_from_slice(&self.job.0);
        for (field, bytes) in [("stem", &self.stem), ("name", &self.name)] {
            let length = u16::try_from(bytes.len()).map_err(|_| Unusable::Field(field))?;
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(bytes);
        }
        let crc = checksum(&[&out]);
        out.extend_from_slice(&crc.to_le_bytes());
        Ok(out)
    }

    /// Reads a header off the front of `bytes`: the header, its length and its checksum.
    pub(super) fn decode(bytes: &[u8]) -> Result<(Header, usize, u64), Unusable> {
        let mut fields = Fields(bytes);
        if fields.array().ok_or(Unusable::Truncated)? != MAGIC {
            return Err(Unusable::NotALog);
        }
        let raw = match fields.u16().ok_or(Unusable::Truncated)? {
            VERSION_1 => RawBody::read_version_1(&mut fields),
            VERSION => RawBody::read(&mut fields),
            unknown => return Err(Unusable::Version(unknown)),
        };
        let raw = raw.ok_or(Unusable::Truncated)?;
        let body_bytes = bytes.len() - fields.0.len();
        let crc = fields.u64().ok_or(Unusable::Truncated)?;
        if crc != checksum(&[&bytes[..body_bytes]]) {
            return Err(Unusable::Checksum);
        }
        let header = raw.parse()?;
        header.check()?;
        Ok((header, body_bytes + 8, crc))
    }

    fn check(&self) -> Result<(), Unusable> {
        let checks = [
            (
                self.chunk_bytes.is_power_of_two() && (CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&self.chunk_bytes),
                "chunk_bytes",
            ),
            (self.object_bytes.is_none_or(|bytes| bytes <= OBJECT_BYTES_MAX), "object_bytes"),
            ((1..=STEM_BYTES_MAX).contains(&self.stem.len()), "stem"),
            ((1..=NAME_BYTES_MAX).contains(&self.name.len()) && !self.name.contains(&0), "name"),
        ];
        match checks.iter().find(|(is_ok, _)| !is_ok) {
            Some((_, field)) => Err(Unusable::Field(field)),
            None => Ok(()),
        }
    }
}

/// The fields between the version and the checksum, not yet judged: the checksum comes first.
struct RawBody<'a> {
    algorithm: u8,
    reserved: u8,
    chunk_bytes: u64,
    object_bytes: Option<u64>,
    stem: &'a [u8],
    boot: [u8; 16],
    job: [u8; 16],
    name: &'a [u8],
}

impl<'a> RawBody<'a> {
    // Struct expressions evaluate their fields in the order written, which is that of the layout.
    fn read(fields: &mut Fields<'a>) -> Option<RawBody<'a>> {
        Some(RawBody {
            algorithm: fields.u8()?,
            reserved: fields.u8()?,
            chunk_bytes: fields.u64()?,
            object_bytes: None,
            boot: fields.array()?,
            job: fields.array()?,
            stem: fields.counted()?,
            name: fields.counted()?,
        })
    }

    fn read_version_1(fields: &mut Fields<'a>) -> Option<RawBody<'a>> {
        Some(RawBody {
            algorithm: fields.u8()?,
            reserved: fields.u8()?,
            chunk_bytes: fields.u64()?,
            object_bytes: Some(fields.u64()?),
            stem: fields.slice(GENERATION_BYTES)?,
            boot: fields.array()?,
            job: fields.array()?,
            name: fields.counted()?,
        })
    }

    fn parse(self) -> Result<Header, Unusable> {
        if self.reserved != 0 {
            return Err(Unusable::Field("reserved"));
        }
        let algorithm = algorithm_from_number(self.algorithm).ok_or(Unusable::Algorithm(self.algorithm))?;
        if self.object_bytes.is_some() {
            self.check_times()?;
        }
        Ok(Header {
            algorithm,
            chunk_bytes: self.chunk_bytes,
            object_bytes: self.object_bytes,
            stem: self.stem.to_vec(),
            boot: self.boot,
            job: JobId(self.job),
            name: self.name.to_vec(),
        })
    }

    /// Of a generation in the place that version 1 has for it.
    fn check_times(&self) -> Result<(), Unusable> {
        for (at, field) in [(16, "mtime_ns"), (28, "ctime_ns")] {
            let nanoseconds = Fields(&self.stem[at..]).u32();
            if nanoseconds.is_none_or(|nanoseconds| nanoseconds > NANOSECONDS_MAX) {
                return Err(Unusable::Field(field));
            }
        }
        Ok(())
    }
}

fn put_timestamp(out: &mut Vec<u8>, timestamp: Timestamp) {
    out.extend_from_slice(&timestamp.seconds.to_le_bytes());
    out.extend_from_slice(&timestamp.nanoseconds.to_le_bytes());
}

fn algorithm_number(algorithm: DigestAlgorithm) -> u8 {
    match algorithm {
        DigestAlgorithm::Crc64Nvme => 1,
        DigestAlgorithm::Blake3 => 2,
    }
}

fn algorithm_from_number(number: u8) -> Option<DigestAlgorithm> {
    match number {
        1 => Some(DigestAlgorithm::Crc64Nvme),
        2 => Some(DigestAlgorithm::Blake3),
        _ => None,
    }
}
