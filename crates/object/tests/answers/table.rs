//! What a copy comes to of which one request goes wrong: each fault, at each request.
//!
//! The table says it for most requests of a fault, and then for those that differ. A fault that has nothing to change in a request
//! or its answer is made up for without anything being done.

use Ends::{Arrives, Fails, Untold};
use Request::*;
use fakes::Fault;
use model::FailureKind::{self, Changed, DigestMismatch, InTheWay, Other, Permission, ReadError, WriteError};

/// How a copy ends whose request goes wrong once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ends {
    Arrives,
    Fails(FailureKind),
    /// Nothing tells it: no checksum covers the answer, and TLS notices what changes it on the way; or it was true a moment
    /// ago.
    Untold,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// A page of a listing.
    Page,
    /// A range of an object that is read.
    Range,
    /// A whole one.
    Whole,
    /// A look at one.
    Look,
    /// One that is put.
    Put,
    /// A part of one.
    Part,
    /// The beginning of an upload of parts.
    Create,
    /// Its end.
    Complete,
    /// What is there of one that was interrupted.
    Parts,
    /// The page that shows what stands where an object is to be put.
    Place,
    /// The removal of many keys.
    Delete,
    /// A copy that the store makes.
    Copy,
    /// A part of one.
    CopyPart,
}

/// What most requests come to, and those that come to something else.
type Row = (Fault, Ends, &'static [(Request, Ends)]);

/// An answer to a look has no body that says why it is refused. What cannot be removed together is removed one by one, what the
/// store does not copy comes through this host, and parts that it tells nothing of are sent again.
const TABLE: &[Row] = &[
    (
        Fault::Status(403),
        Fails(Permission),
        &[(Parts, Arrives), (Delete, Arrives), (Copy, Fails(Other)), (CopyPart, Fails(Other))],
    ),
    (Fault::Status(429), Arrives, &[]),
    (Fault::Status(500), Arrives, &[]),
    (Fault::Status(503), Arrives, &[]),
    (Fault::AtOnce, Arrives, &[]),
    (Fault::Later, Arrives, &[]),
    (Fault::OkWithError, Arrives, &[]),
    (Fault::OkEmpty, Arrives, &[]),
    (Fault::Html, Arrives, &[]),
    (Fault::LostAnswer, Arrives, &[]),
    (Fault::Reset, Arrives, &[]),
    (Fault::Stall, Arrives, &[]),
    (Fault::Drip, Arrives, &[]),
    (Fault::Cut, Arrives, &[]),
    (
        Fault::Flipped,
        Arrives,
        &[
            (Page, Untold),
            (Range, Fails(DigestMismatch)),
            // Another name of the upload, and another ETag of the part.
            (Create, Fails(WriteError)),
            (Complete, Untold),
            (Place, Untold),
            (CopyPart, Fails(Other)),
        ],
    ),
    // A list of parts has no checksum, and makes no object of other parts than there are.
    (Fault::FlippedSent, Arrives, &[(Complete, Fails(Other))]),
    (Fault::NoRange, Arrives, &[(Page, Fails(Other)), (Range, Fails(ReadError))]),
    (Fault::WrongRange, Arrives, &[(Range, Fails(ReadError))]),
    (Fault::Longer, Arrives, &[(Range, Fails(ReadError)), (Whole, Fails(Changed)), (Look, Fails(ReadError))]),
    (Fault::Huge, Arrives, &[(Range, Fails(ReadError)), (Whole, Fails(Changed)), (Look, Fails(ReadError))]),
    // The ETag of a part stands in the list by which the object is made.
    (Fault::OtherVersion, Arrives, &[(Range, Fails(Changed)), (Look, Fails(Changed)), (Part, Fails(Other))]),
    (Fault::Packed, Arrives, &[(Range, Fails(ReadError)), (Look, Fails(DigestMismatch))]),
    (
        Fault::Abroad,
        Fails(Other),
        &[
            (Range, Fails(ReadError)),
            (Whole, Fails(ReadError)),
            (Part, Fails(WriteError)),
            (Create, Fails(WriteError)),
            (Parts, Arrives),
            (Delete, Arrives),
        ],
    ),
    (Fault::Expired, Fails(Permission), &[(Delete, Arrives), (Copy, Fails(Other)), (CopyPart, Fails(Other))]),
    (
        Fault::Archived,
        Fails(Other),
        &[
            (Range, Fails(ReadError)),
            (Whole, Fails(ReadError)),
            (Look, Fails(Permission)),
            (Part, Fails(WriteError)),
            (Create, Fails(WriteError)),
            (Parts, Arrives),
            (Delete, Arrives),
            (Copy, Fails(ReadError)),
            (CopyPart, Fails(ReadError)),
        ],
    ),
    (Fault::WrongSum, Arrives, &[(Look, Fails(DigestMismatch))]),
    (Fault::Composite, Arrives, &[]),
    (Fault::Unsummed, Arrives, &[]),
    (Fault::Unsorted, Arrives, &[(Page, Fails(Other))]),
    (Fault::Doubled, Arrives, &[(Page, Fails(Other))]),
    // What a listing did not show is in the way, and stays.
    (Fault::Stale, Arrives, &[(Page, Untold), (Place, Fails(InTheWay))]),
];

/// The faults that are told at a request, and what it comes to.
pub fn faults_at(request: Request) -> impl Iterator<Item = (Fault, Ends)> {
    let ends = move |(fault, usual, others): &Row| {
        let other = others.iter().find(|(at, _)| *at == request);
        (*fault, other.map_or(*usual, |(_, ends)| *ends))
    };
    TABLE.iter().map(ends).filter(|(_, ends)| *ends != Untold)
}
