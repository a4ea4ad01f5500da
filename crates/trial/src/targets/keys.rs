//! Names as keys of object stores have them: a name that is written is read again, a key that is a path is that path
//! alone, and no path climbs.

use super::bytes::Bytes;
use model::Name;
use model::name::{join, relative_path};
use object::said::{of_name, of_path, to_name, to_names, to_path};

/// Of one byte of a name.
const KEY_BYTES_MAX: usize = 5;

pub fn run(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let kind = bytes.u8();
    let text = bytes.rest();
    match kind % 3 {
        0 => name(text),
        1 => key(&String::from_utf8_lossy(text)),
        _ => path(text),
    }
}

fn name(bytes: &[u8]) {
    let part = of_name(bytes);
    assert!(part.len() <= KEY_BYTES_MAX * bytes.len(), "a name takes more and more room: {part:?}");
    assert_eq!(to_name(&part).ok(), Name::new(bytes).ok(), "a name does not read back: {part:?}");
}

fn key(key: &str) {
    let path = to_path(key);
    let Ok(names) = to_names(key) else { return };
    assert_eq!(join(&names), path, "two ways to a path");
    assert_eq!(of_path(&path), key, "a key does not write back");
    assert_eq!(relative_path(&path).as_ref(), Ok(&names), "a key leads somewhere else");
}

fn path(path: &[u8]) {
    let key = of_path(path);
    let is_path = path.split(|byte| *byte == b'/').all(Name::is_valid);
    let read = to_names(&key).ok().map(|names| join(&names));
    assert_eq!(read, is_path.then(|| path.to_vec()), "a path does not read back: {key:?}");
}
