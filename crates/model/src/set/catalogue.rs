//! The files of a set with what is in them, in pages of at most 65,536 lines that are found by their digests.
//!
//! A page lists files (`DIGEST SIZE SECONDS PATH`) or further pages (`DIGEST BYTES`); beside a page of files lie the digests of
//! the chunks of those that have several, in order. A page is believed for its digest, digests of chunks because they combine to
//! that of their file.
//!
//! Invariants:
//! - Paths are made of names, none leads out of the set or into the directory of its note, and each is there once.
//! - What is written reads back as the same catalogue, and the same files make the same pages.

pub use super::note::PAGE_BYTES_MAX;
use super::note::{digest_of, number};
use super::{DIRECTORY, page_name};
use crate::name::{Escaped, Name, unescape};
use crate::{Digest, DigestAlgorithm};

/// Lines of a page.
pub const LINES_MAX: usize = 65_536;
/// One is closed when it has become this long.
const PAGE_BYTES_FULL: usize = 16 << 20;
/// Pages above one of files: as many files as nobody has.
pub const DEPTH_MAX: usize = 3;
/// What a catalogue in memory may hold.
pub const FILES_MAX: u64 = 1 << 25;
pub const CHUNKS_MAX: u64 = 1 << 25;
/// Of all pages together, without the digests of chunks: so many files with paths of some 160 bytes.
pub const BYTES_MAX: u64 = 8 << 30;
const PATH_BYTES_MAX: usize = 4095;
const OF_FILES: &str = "thalweg catalogue 1 files";
const OF_PAGES: &str = "thalweg catalogue 1 catalogues";
const DIGEST_BYTES: usize = 32;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetFile {
    pub path: Box<[u8]>,
    pub size_bytes: u64,
    /// Seconds since 1970.
    pub modified: i64,
    /// BLAKE3 of its content.
    pub root: [u8; 32],
}

impl SetFile {
    /// How many digests of chunks it has; none where the root says it all.
    pub fn chunks(&self, chunk_bytes: u64) -> u64 {
        if self.size_bytes > chunk_bytes { self.size_bytes.div_ceil(chunk_bytes) } else { 0 }
    }
}

/// One page, as it was read.
#[derive(PartialEq, Eq, Debug)]
pub enum Page {
    Files { chunk_bytes: u64, files: Vec<SetFile> },
    Pages(Vec<PageLine>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageLine {
    pub digest: [u8; 32],
    pub bytes: u64,
}

/// A page as it is kept.
pub struct Written {
    pub digest: [u8; 32],
    pub bytes: Vec<u8>,
    /// Beside a page of files.
    pub tree: Vec<u8>,
}

/// All files of a set.
#[derive(Default, Debug)]
pub struct Catalogue {
    pub chunk_bytes: u64,
    files: Vec<SetFile>,
    /// Digests of chunks, and where those of each file begin.
    trees: Vec<u8>,
    tree_at: Vec<usize>,
    bytes: u64,
}

impl Page {
    /// # Errors
    /// When the bytes are no page.
    pub fn parse(bytes: &[u8]) -> Result<Page, String> {
        let lines = bytes.strip_suffix(b"\n").ok_or("its last line has no end")?;
        let mut lines = lines.split(|byte| *byte == b'\n');
        let first = lines.next().and_then(|line| std::str::from_utf8(line).ok()).unwrap_or_default();
        let too_many = || format!("it has more than {LINES_MAX} lines");
        if first == OF_PAGES {
            let page = |line: &[u8]| -> Option<PageLine> {
                let (digest, bytes) = std::str::from_utf8(line).ok()?.split_once(' ')?;
                let bytes = number(bytes).ok().filter(|bytes| *bytes <= PAGE_BYTES_MAX)?;
                Some(PageLine { digest: digest_of(digest)?, bytes })
            };
            let pages: Vec<_> =
                lines.by_ref().take(LINES_MAX).map(page).collect::<Option<_>>().ok_or("a line cannot be read")?;
            return if lines.next().is_none() { Ok(Page::Pages(pages)) } else { Err(too_many()) };
        }
        let chunk = first.strip_prefix(OF_FILES).and_then(|rest| rest.strip_prefix(' ')).ok_or("it is no catalogue")?;
        let chunk_bytes = number(chunk)?;
        super::note::check_chunk(chunk_bytes)?;
        let mut files = Vec::new();
        for line in lines {
            if files.len() == LINES_MAX {
                return Err(too_many());
            }
            files.push(file_of(line)?);
        }
        Ok(Page::Files { chunk_bytes, files })
    }
}

fn file_of(line: &[u8]) -> Result<SetFile, String> {
    let bad = || format!("a line cannot be read: {}", Escaped(&line[..line.len().min(200)]));
    let mut words = line.splitn(4, |byte| *byte == b' ');
    let mut word = || words.next().and_then(|word| std::str::from_utf8(word).ok()).ok_or_else(bad);
    let (root, size, seconds) = (word()?, word()?, word()?);
    let modified = seconds.parse().ok().filter(|parsed: &i64| parsed.to_string() == seconds).ok_or_else(bad)?;
    let path = words.next().and_then(unescape).ok_or_else(bad)?;
    let root = digest_of(root).ok_or_else(bad)?;
    Ok(SetFile { path: path.into(), size_bytes: number(size)?, modified, root })
}

/// # Errors
/// When the path is not made of names, or lies where the set's own files do.
pub fn check_path(path: &[u8]) -> Result<(), String> {
    let is_path = path.len() <= PATH_BYTES_MAX && path.split(|byte| *byte == b'/').all(Name::is_valid);
    let is_own = path.split(|byte| *byte == b'/').next() == Some(DIRECTORY.as_bytes());
    match is_path && !is_own {
        true => Ok(()),
        false => Err(format!("{} is no path in a set", Escaped(path))),
    }
}

impl Catalogue {
    pub fn new(chunk_bytes: u64) -> Catalogue {
        Catalogue { chunk_bytes, ..Catalogue::default() }
    }

    pub fn files(&self) -> &[SetFile] {
        &self.files
    }

    /// Of all files.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next file in the order of paths, with the digests of its chunks where it has several.
    ///
    /// # Errors
    /// When the file has no place here, or the digests are not its own.
    pub fn add(&mut self, file: SetFile, tree: &[u8]) -> Result<(), String> {
        check_path(&file.path)?;
        let shown = || Escaped(&file.path).to_string();
        if self.files.last().is_some_and(|last| last.path >= file.path) {
            return Err(format!("{} is not in order", shown()));
        }
        let above = (0..file.path.len()).filter(|at| file.path[*at] == b'/').map(|at| &file.path[..at]);
        for directory in above {
            if self.files.binary_search_by(|known| (*known.path).cmp(directory)).is_ok() {
                return Err(format!("{} lies in a file", shown()));
            }
        }
        let chunks = file.chunks(self.chunk_bytes);
        if self.files.len() as u64 >= FILES_MAX || (self.trees.len() / DIGEST_BYTES) as u64 + chunks > CHUNKS_MAX {
            return Err("it has more files or chunks than this program holds".to_owned());
        }
        if tree.len() as u64 != chunks * DIGEST_BYTES as u64 {
            return Err(format!("the digests of the chunks of {} are too few or too many", shown()));
        }
        if chunks > 0 {
            let digests = digests_in(tree);
            let root = DigestAlgorithm::Blake3.combine(&digests, self.chunk_bytes, file.size_bytes);
            if root != Digest::Blake3(file.root) {
                return Err(format!("the digests of the chunks of {} are not those of its content", shown()));
            }
        }
        self.bytes = self.bytes.checked_add(file.size_bytes).ok_or("its files are larger than can be")?;
        self.tree_at.push(self.trees.len());
        self.trees.extend_from_slice(tree);
        self.files.push(file);
        Ok(())
    }

    /// What a page tells.
    ///
    /// # Errors
    /// As `add`.
    pub fn add_page(&mut self, files: Vec<SetFile>, tree: &[u8]) -> Result<(), String> {
        let mut rest = tree;
        for file in files {
            let bytes = usize::try_from(file.chunks(self.chunk_bytes)).ok().and_then(|n| n.checked_mul(DIGEST_BYTES));
            let own = bytes.and_then(|bytes| rest.split_at_checked(bytes));
            let (own, after) = own.ok_or("the digests of chunks end too early")?;
            self.add(file, own)?;
            rest = after;
        }
        if rest.is_empty() { Ok(()) } else { Err("there are more digests of chunks than chunks".to_owned()) }
    }

    /// Digests of chunks of a file, by its number; of one that has a single chunk that of the file.
    pub fn digests(&self, file: usize, first: u64, count: u64) -> Vec<Digest> {
        let Some(found) = self.files.get(file) else { return Vec::new() };
        let chunks = found.chunks(self.chunk_bytes);
        if chunks == 0 {
            return vec![Digest::Blake3(found.root)];
        }
        let (first, last) = (first.min(chunks), first.saturating_add(count).min(chunks));
        let at = |chunk: u64| self.tree_at[file] + chunk as usize * DIGEST_BYTES;
        digests_in(&self.trees[at(first)..at(last)])
    }

    fn tree(&self, file: usize) -> &[u8] {
        let end = self.tree_at.get(file + 1).copied().unwrap_or(self.trees.len());
        &self.trees[self.tree_at[file]..end]
    }

    /// The file of this path, by its number.
    pub fn find(&self, path: &[u8]) -> Option<usize> {
        self.files.binary_search_by(|file| (*file.path).cmp(path)).ok()
    }

    /// The digests of chunks of a file as they are kept.
    pub fn tree_of(&self, file: usize) -> Vec<u8> {
        self.tree(file).to_vec()
    }

    /// The pages: first those of files, the first page last.
    pub fn pages(&self) -> Vec<Written> {
        let mut pages = self.pages_of_files();
        let mut from = 0;
        while pages.len() - from > 1 {
            let below = from..pages.len();
            from = pages.len();
            let lines: Vec<String> =
                pages[below].iter().map(|page| format!("{} {}\n", page_name(&page.digest), page.bytes.len())).collect();
            for lines in lines.chunks(LINES_MAX) {
                pages.push(Written::new(format!("{OF_PAGES}\n{}", lines.concat()).into_bytes(), Vec::new()));
            }
        }
        pages
    }

    fn pages_of_files(&self) -> Vec<Written> {
        let first_line = format!("{OF_FILES} {}\n", self.chunk_bytes).into_bytes();
        let mut pages = Vec::new();
        let (mut page, mut tree, mut lines) = (first_line.clone(), Vec::new(), 0);
        for (number, file) in self.files.iter().enumerate() {
            if lines == LINES_MAX || page.len() >= PAGE_BYTES_FULL {
                pages.push(Written::new(std::mem::replace(&mut page, first_line.clone()), std::mem::take(&mut tree)));
                lines = 0;
            }
            let head = format!("{} {} {} ", page_name(&file.root), file.size_bytes, file.modified);
            page.extend_from_slice(head.as_bytes());
            Escaped(&file.path).put(&mut page);
            page.push(b'\n');
            tree.extend_from_slice(self.tree(number));
            lines += 1;
        }
        pages.push(Written::new(page, tree));
        pages
    }
}

impl Written {
    fn new(bytes: Vec<u8>, tree: Vec<u8>) -> Written {
        Written { digest: *blake3::hash(&bytes).as_bytes(), bytes, tree }
    }
}

/// How long the digests of chunks beside a page of these files are; nothing where that is more than is held.
pub fn tree_bytes(files: &[SetFile], chunk_bytes: u64) -> Option<u64> {
    let chunks = files.iter().try_fold(0u64, |sum, file| sum.checked_add(file.chunks(chunk_bytes)))?;
    (chunks <= CHUNKS_MAX).then_some(chunks * DIGEST_BYTES as u64)
}

fn digests_in(tree: &[u8]) -> Vec<Digest> {
    tree.as_chunks::<DIGEST_BYTES>().0.iter().map(|bytes| Digest::Blake3(*bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ChunkHasher;

    const CHUNK: u64 = 1 << 20;

    fn content(size: usize) -> Vec<u8> {
        (0..size).map(|at| (at * 31 % 251) as u8).collect()
    }

    /// A file with this content, and the digests of its chunks.
    fn file(path: &str, bytes: &[u8]) -> (SetFile, Vec<u8>) {
        let root = *blake3::hash(bytes).as_bytes();
        let file = SetFile { path: path.as_bytes().into(), size_bytes: bytes.len() as u64, modified: -7, root };
        let mut tree = Vec::new();
        if file.chunks(CHUNK) > 0 {
            for (at, chunk) in bytes.chunks(CHUNK as usize).enumerate() {
                let mut hasher = ChunkHasher::new(DigestAlgorithm::Blake3, at as u64 * CHUNK);
                hasher.update(chunk);
                hasher.finish(false).put(&mut tree);
            }
        }
        (file, tree)
    }

    fn set(files: &[(&str, usize)]) -> Catalogue {
        let mut catalogue = Catalogue::new(CHUNK);
        for (path, size) in files {
            let (file, tree) = file(path, &content(*size));
            catalogue.add(file, &tree).unwrap();
        }
        catalogue
    }

    fn read(pages: &[Written]) -> Catalogue {
        let mut catalogue = Catalogue::new(CHUNK);
        for page in pages {
            if let Page::Files { chunk_bytes, files } = Page::parse(&page.bytes).unwrap() {
                assert_eq!(chunk_bytes, CHUNK);
                catalogue.add_page(files, &page.tree).unwrap();
            }
        }
        catalogue
    }

    #[test]
    fn what_is_written_reads_back() {
        let set = set(&[("a", 0), ("b/c\n\\", 5), ("b/d", (3 << 20) + 1), ("e", 2 << 20)]);
        let again = read(&set.pages());
        assert_eq!((set.files(), &set.trees, set.bytes()), (again.files(), &again.trees, again.bytes()));
        assert_eq!(set.digests(2, 1, 99).len(), 3);
        assert_eq!(set.digests(2, 9, u64::MAX).len(), 0);
        assert_eq!(set.digests(0, 0, 1), [Digest::Blake3(set.files()[0].root)]);
        assert_eq!(set.find(b"e"), Some(3));
    }

    #[test]
    fn many_files_take_several_pages_under_one() {
        let mut set = Catalogue::new(CHUNK);
        let (one, _) = file("x", b"same");
        for at in 0..LINES_MAX + 2 {
            set.add(SetFile { path: format!("f{at:08}").into_bytes().into(), ..one.clone() }, &[]).unwrap();
        }
        let pages = set.pages();
        assert_eq!(pages.len(), 3);
        let Page::Pages(lines) = Page::parse(&pages[2].bytes).unwrap() else { panic!("the last is the first page") };
        assert_eq!(lines.len(), 2);
        assert_eq!((lines[1].digest, lines[1].bytes), (pages[1].digest, pages[1].bytes.len() as u64));
        assert_eq!(read(&pages).files().len(), LINES_MAX + 2);
    }

    #[test]
    fn no_path_leads_out_of_the_set() {
        for bad in ["", "/a", "a/", "a//b", "..", "a/../b", "./a", "a/.", ".thalweg-set/note", ".thalweg-set"] {
            let (file, _) = file(bad, b"x");
            assert!(Catalogue::new(CHUNK).add(file, &[]).is_err(), "{bad}");
        }
        assert!(
            check_path(b"a\0b").is_err() && check_path(&[b'a'; 4096]).is_err() && check_path(&[b'a'; 256]).is_err()
        );
        assert!(check_path(b"a/.thalweg-set/b").is_ok());
    }

    #[test]
    fn a_path_is_there_once_and_in_order_and_in_no_file() {
        for paths in [["a", "a"], ["b", "a"], ["a", "a/b"]] {
            let mut catalogue = Catalogue::new(CHUNK);
            catalogue.add(file(paths[0], b"x").0, &[]).unwrap();
            assert!(catalogue.add(file(paths[1], b"x").0, &[]).is_err(), "{paths:?}");
        }
    }

    #[test]
    fn digests_of_chunks_are_believed_if_they_make_the_root() {
        let (large, tree) = file("x", &content(3 << 20));
        assert!(Catalogue::new(CHUNK).add(large.clone(), &tree).is_ok());
        let mut wrong = tree.clone();
        wrong[40] ^= 1;
        for bad in [&tree[..64], &[], &wrong[..], &[&tree[..], &[0; 32]].concat()] {
            assert!(Catalogue::new(CHUNK).add(large.clone(), bad).is_err(), "{}", bad.len());
        }
        assert!(Catalogue::new(CHUNK).add_page(vec![large.clone()], &tree[..90]).is_err());
        assert!(Catalogue::new(CHUNK).add_page(vec![large], &[&tree[..], &[1]].concat()).is_err());
    }

    #[test]
    fn what_is_no_page_is_refused() {
        let hex = "0".repeat(64);
        let many = format!("{OF_PAGES}\n{}", format!("{hex} 1\n").repeat(LINES_MAX + 1));
        for bad in [
            "",
            "\n",
            "x\n",
            OF_FILES,
            &format!("{OF_FILES} 8\n"),
            &format!("{OF_FILES} {CHUNK}\nx\n"),
            &format!("{OF_FILES} {CHUNK}\n{hex} 1 1\n"),
            &format!("{OF_FILES} {CHUNK}\n{hex} -1 1 a\n"),
            &format!("{OF_FILES} {CHUNK}\n{hex} 1 +1 a\n"),
            &format!("{OF_PAGES}\n{hex}\n"),
            &format!("{OF_PAGES}\n{hex} 99999999999\n"),
            &format!("{OF_PAGES}\n\n"),
            &many,
        ] {
            assert!(Page::parse(bad.as_bytes()).is_err(), "{}", &bad[..bad.len().min(90)]);
        }
        let sizes = [SetFile { size_bytes: u64::MAX >> 1, path: b"a"[..].into(), modified: 0, root: [0; 32] }];
        assert_eq!(tree_bytes(&sizes, 1 << 20), None);
    }
}
