//! Manifests: what is read writes back, and no line becomes a path that it does not say.

use model::manifest::{LINE_BYTES_MAX, Parser, first_line, line};

pub fn run(data: &[u8]) {
    let mut lines = data.split(|&b| b == b'\n');
    let Ok(mut parser) = Parser::new(lines.next().unwrap_or_default()) else { return };
    let algorithm = parser.algorithm();
    let first = first_line(algorithm);
    let mut again = Parser::new(first.trim_end().as_bytes()).expect("the line that this program writes");
    for text in lines {
        let Ok(Some(entry)) = parser.line(text) else { continue };
        assert!(text.len() <= LINE_BYTES_MAX && !entry.path.is_empty() && !entry.path.contains(&0));
        let written = line(&entry.digest, entry.size_bytes, &entry.path);
        let (end, body) = written.as_bytes().split_last().expect("a line is not empty");
        assert!(*end == b'\n' && !body.contains(&b'\n'));
        assert_eq!(again.line(body), Ok(Some(entry)), "a line does not write back");
    }
}
