//! The tree that the golden sessions move: three directories, one of them empty, a link, twenty small files, one file of
//! one chunk and one of three.
//!
//! Content repeats itself, so that the recordings stay small, and differs in every file and every 64 KiB, so that no two
//! places can be mixed up.

pub enum Item {
    Directory,
    File(Vec<u8>),
    Link(&'static str),
}

/// Paths with what is there, directories before what is in them.
pub fn tree() -> Vec<(String, Item)> {
    let mut items = vec![
        ("docs".to_owned(), Item::Directory),
        ("docs/drafts".to_owned(), Item::Directory),
        ("empty".to_owned(), Item::Directory),
        ("docs/latest".to_owned(), Item::Link("drafts/note-07")),
        ("big".to_owned(), Item::File(content(99, 5 << 19))),
        ("one-chunk".to_owned(), Item::File(content(98, (128 << 10) + 1))),
    ];
    for number in 0..20 {
        let length = match number {
            0 => 0,
            1 => 1,
            2 => 128 << 10,
            _ => number * 97,
        };
        let directory = ["", "docs/", "docs/drafts/"][number % 3];
        items.push((format!("{directory}note-{number:02}"), Item::File(content(number, length))));
    }
    items
}

fn content(seed: usize, length: usize) -> Vec<u8> {
    let at = |place: usize| match place % (64 << 10) {
        within @ 0..4 => (place >> 16 << 2 | within) as u8,
        within => (within * within / 97 + within * 31 % 4096 / 16 + seed * 41) as u8,
    };
    let pattern: Vec<u8> = (0..1024.min(length)).map(|place| at(place + 4)).collect();
    let mut bytes: Vec<u8> = pattern.iter().copied().cycle().take(length).collect();
    for place in (0..length).filter(|place| place % (64 << 10) < 4) {
        bytes[place] = at(place);
    }
    bytes
}
