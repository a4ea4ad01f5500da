//! One object of a job: its description, the content that came for it, and what a session leaves at the receiver.

use std::collections::BTreeMap;
use std::ops::Range;

use super::content::{Algorithm, Piece, Status};
use super::job::require;
use super::protobuf::Message;

const PACKED_BYTES_MAX: u64 = 128 << 10;
const NAME_BYTES_MAX: usize = 255;
const LINK_BYTES_MAX: usize = 4096;

#[derive(Clone, Debug)]
pub struct Object {
    pub id: u64,
    pub kind: Kind,
    /// Names from the root of the job, joined by slashes.
    pub path: Vec<u8>,
    pub size: u64,
    pub generation: Generation,
    pub link: Vec<u8>,
    pub progress: Progress,
    /// By start.
    pub chunks: BTreeMap<u64, Chunk>,
    /// All content is of one version of the source.
    pub is_final: bool,
    is_name_allowed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Directory,
    File,
    Link,
    /// A file whose end is not known when it is described.
    Open,
}

/// Size, modified, changed, inode and device.
pub type Generation = [u64; 7];

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    Described,
    Wanted(Want),
    Published,
    Skipped,
    Failed,
    /// The source changed.
    Void,
    /// The sender said that the source failed.
    GivenUp,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Want {
    Whole,
    Extents(Vec<(u64, u64)>),
}

#[derive(Clone, Debug)]
pub struct Chunk {
    pub bytes: Vec<u8>,
    pub is_acknowledged: bool,
}

/// What a session leaves behind, by path.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    pub published: BTreeMap<Vec<u8>, Published>,
    /// Chunks of objects that are not settled, by the start of the chunk.
    held: BTreeMap<(Vec<u8>, Generation), BTreeMap<u64, Vec<u8>>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Published {
    Directory,
    File(Vec<u8>),
    Link(Vec<u8>),
}

impl Kind {
    pub fn has_content(self) -> bool {
        matches!(self, Kind::File | Kind::Open)
    }
}

impl Object {
    pub fn describe(id: u64, parent_path: &[u8], entry: &Message) -> Result<Object, String> {
        let kind = match entry.number("kind")? {
            1 => Kind::Directory,
            2 => Kind::File,
            3 => Kind::Link,
            4 => Kind::Open,
            other => return Err(format!("object {id}: kind {other} does not exist")),
        };
        let name = entry.bytes("name")?;
        let separator: &[u8] = if parent_path.is_empty() { b"" } else { b"/" };
        let generation = [
            "size_bytes",
            "modified_seconds",
            "modified_nanoseconds",
            "changed_seconds",
            "changed_nanoseconds",
            "inode",
            "device",
        ];
        let mut numbers = [0; 7];
        for (number, name) in numbers.iter_mut().zip(generation) {
            *number = entry.number(name)?;
        }
        let nanoseconds_max = numbers[2].max(numbers[4]);
        require(nanoseconds_max < 1_000_000_000, || format!("object {id}: {nanoseconds_max} nanoseconds"))?;
        let mode = entry.number("mode")?;
        let is_in_range = mode <= 0o7777 && numbers[0] <= i64::MAX as u64;
        require(is_in_range, || format!("object {id}: mode {mode:#o} or size {}", numbers[0]))?;
        let link = entry.bytes("link")?.to_vec();
        let is_link_right = match kind {
            Kind::Link => (1..=LINK_BYTES_MAX).contains(&link.len()) && !link.contains(&0),
            _ => link.is_empty(),
        };
        require(is_link_right, || format!("object {id}: link {}", link.escape_ascii()))?;
        Ok(Object {
            id,
            kind,
            path: [parent_path, separator, name].concat(),
            size: numbers[0],
            generation: numbers,
            link,
            progress: Progress::Described,
            chunks: BTreeMap::new(),
            is_final: false,
            is_name_allowed: is_name_allowed(name),
        })
    }

    /// What the object adds to the bytes of the listing.
    pub fn listed_bytes(&self) -> u64 {
        if self.kind.has_content() { self.size } else { 0 }
    }

    /// Nothing more is said about the object.
    pub fn is_over(&self) -> bool {
        !matches!(self.progress, Progress::Described | Progress::Wanted(_))
    }

    /// The sender took the object back. What the receiver says of it may have crossed that on the way.
    pub fn is_taken_back(&self) -> bool {
        matches!(self.progress, Progress::Void | Progress::GivenUp)
    }

    /// Whether the piece was asked for, and has the place and length that its object's size gives it.
    pub fn check_place(&self, piece: &Piece, chunk_bytes: u64) -> Result<(), String> {
        let (id, start, end) = (self.id, piece.start, piece.end());
        let want = match &self.progress {
            Progress::Wanted(want) => want,
            other => return Err(format!("object {id}: content for what is {other:?}")),
        };
        if let Want::Extents(extents) = want {
            let is_inside = extents.iter().any(|extent| extent.0 <= start && end <= extent.1);
            require(is_inside, || format!("object {id}, {start}..{end}: was not wanted"))?;
        }
        if piece.status == Status::Changed {
            return Ok(());
        }
        let is_packed = piece.size.is_none();
        if piece.status == Status::Unreadable {
            return Ok(());
        }
        if self.kind == Kind::Open {
            let is_last = piece.status == Status::Final && piece.size == Some(end);
            let is_placed = !is_packed && (is_last || end - start == chunk_bytes);
            return require(is_placed, || format!("object {id}, {start}..{end}: is no chunk of it"));
        }
        require(is_packed == (self.size <= PACKED_BYTES_MAX), || {
            format!("object {id}: {} bytes, wrong frame", self.size)
        })?;
        require(piece.size.is_none_or(|size| size == self.size), || format!("object {id}: another size"))?;
        let expected = if is_packed { self.size } else { self.size.min(start + chunk_bytes) };
        require(end == expected, || format!("object {id}, {start}..{end}: should end at {expected}"))
    }

    /// Keeps the content of a piece; false when there was content at its place.
    pub fn keep(&mut self, piece: Piece) -> bool {
        if let (Kind::Open, Status::Final, Some(size)) = (self.kind, piece.status, piece.size) {
            self.size = size;
        }
        let is_new = !self.chunks.contains_key(&piece.start);
        if is_new {
            self.chunks.insert(piece.start, Chunk { bytes: piece.payload, is_acknowledged: false });
        }
        is_new
    }

    /// Extents that are wanted consist of whole chunks.
    pub fn check_extents(&self, extents: &[(u64, u64)], chunk_bytes: u64) -> Result<(), String> {
        let is_edge = |at: u64| at.is_multiple_of(chunk_bytes) || at == self.size;
        let wrong = extents.iter().find(|&&(start, end)| {
            !start.is_multiple_of(chunk_bytes) || !is_edge(end) || self.kind == Kind::File && end > self.size
        });
        require(wrong.is_none(), || format!("object {}: the extent {wrong:?} is no row of chunks", self.id))
    }

    /// Whether a chunk of exactly this extent came.
    pub fn holds_chunk(&self, start: u64, end: u64) -> bool {
        self.chunks.get(&start).is_some_and(|chunk| start + chunk.bytes.len() as u64 == end)
    }

    /// Whether chunks that came cover `start..end` exactly.
    fn received(&self, start: u64, end: u64) -> bool {
        let mut at = start;
        while let Some(chunk) = self.chunks.get(&at).filter(|chunk| at < end && !chunk.bytes.is_empty()) {
            at += chunk.bytes.len() as u64;
        }
        at == end
    }

    /// Marks the chunks that start inside as acknowledged and counts their bytes.
    pub fn acknowledge(&mut self, within: Range<u64>) -> u64 {
        let mut bytes = 0;
        for chunk in self.chunks.range_mut(within).map(|(_, chunk)| chunk).filter(|chunk| !chunk.is_acknowledged) {
            chunk.is_acknowledged = true;
            bytes += chunk.bytes.len() as u64;
        }
        bytes
    }

    /// Checks that an object which the receiver published is complete, and its digest.
    pub fn publish(
        &mut self,
        held: Option<&BTreeMap<u64, Vec<u8>>>,
        digest: Option<Vec<u8>>,
        algorithm: Algorithm,
        chunk_bytes: u64,
    ) -> Result<(), String> {
        let id = self.id;
        require(self.is_name_allowed, || format!("object {id}: published under a name that is not allowed"))?;
        if self.kind == Kind::Link {
            return require(digest.is_none(), || format!("object {id}: a link with a digest"));
        }
        let Progress::Wanted(want) = &self.progress else {
            return Err(format!("object {id}: published and {:?}", self.progress));
        };
        if let Want::Extents(extents) = want {
            let is_wanted = |start: u64| extents.iter().any(|extent| (extent.0..extent.1).contains(&start));
            for (&start, bytes) in held.into_iter().flatten().filter(|(start, _)| !is_wanted(**start)) {
                self.chunks.insert(start, Chunk { bytes: bytes.clone(), is_acknowledged: true });
            }
        }
        require(self.is_final, || format!("object {id}: published and not known to be good"))?;
        require(self.received(0, self.size), || format!("object {id}: published and not complete"))?;
        let is_digest_due = self.kind == Kind::Open || self.size > chunk_bytes;
        require(digest.is_some() == is_digest_due, || format!("object {id}: a digest too many or missing"))?;
        if let Some(digest) = digest {
            require(digest == algorithm.digest(&self.content()), || format!("object {id}: the digest does not match"))?;
        }
        Ok(())
    }

    fn content(&self) -> Vec<u8> {
        self.chunks.values().flat_map(|chunk| chunk.bytes.iter().copied()).collect()
    }
}

impl Outcome {
    pub fn add(&mut self, path: Vec<u8>, object: &Object) {
        let published = match (&object.progress, object.kind) {
            (Progress::Published, Kind::Directory) => Published::Directory,
            (Progress::Published, Kind::Link) => Published::Link(object.link.clone()),
            (Progress::Published, Kind::File | Kind::Open) => Published::File(object.content()),
            (Progress::Wanted(_), _) => {
                let chunks = object.chunks.iter().map(|(&start, chunk)| (start, chunk.bytes.clone())).collect();
                self.held.insert((path, object.generation), chunks);
                return;
            }
            _ => return,
        };
        self.published.insert(path, published);
    }

    pub fn join(&mut self, other: Outcome) {
        self.published.extend(other.published);
        self.held.extend(other.held);
    }

    /// What an earlier session left of the same version of the object.
    pub fn held(&self, object: &Object) -> Option<&BTreeMap<u64, Vec<u8>>> {
        self.held.get(&(object.path.clone(), object.generation))
    }
}

fn is_name_allowed(name: &[u8]) -> bool {
    let is_whole = !name.iter().any(|&byte| byte == b'/' || byte == 0);
    is_whole && (1..=NAME_BYTES_MAX).contains(&name.len()) && name != b"." && name != b".."
}
