//! The specification against the program: golden sessions read by a decoder that knows only the documents, the same
//! sessions damaged and rearranged, and the documents' tables against the program's types.

mod agreement;
mod damage;
mod golden;
mod growth;
mod rules;
#[path = "../second_decoder/mod.rs"]
mod second_decoder;
#[path = "../golden/tree.rs"]
mod tree;
