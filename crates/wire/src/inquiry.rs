//! Messages of questions about files and their answers (docs/protocol.md sections 4 and 12).
//!
//! Plain fields as they travel; `files` checks them and turns them into the words of `model::files`.

#[derive(Clone, PartialEq, prost::Message)]
pub struct Ask {
    /// Number of the question in this session, chosen by the client.
    #[prost(uint32, tag = "1")]
    pub number: u32,
    /// 1 list, 2 usage, 3 make directories, 4 remove, 5 rename.
    #[prost(uint32, tag = "2")]
    pub action: u32,
    /// Relative to the endpoint's root. Rename: the old and the new one.
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub paths: Vec<Vec<u8>>,
    /// List, usage: how many levels below the paths.
    #[prost(uint32, tag = "4")]
    pub levels: u32,
    /// List: digests of the files by this algorithm; 0 without.
    #[prost(uint32, tag = "5")]
    pub digest: u32,
    /// Make: also what is missing above; what is there is fine. Remove: also what is below.
    #[prost(bool, tag = "6")]
    pub is_recursive: bool,
    /// Remove: also empty directories. Rename: what has the new name is replaced.
    #[prost(bool, tag = "7")]
    pub may_replace: bool,
    /// Remove: the versions that the paths must still have; none, or one for each path.
    #[prost(message, repeated, tag = "8")]
    pub versions: Vec<VersionRecord>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct VersionRecord {
    #[prost(uint64, tag = "1")]
    pub size_bytes: u64,
    #[prost(sint64, tag = "2")]
    pub modified_seconds: i64,
    #[prost(uint32, tag = "3")]
    pub modified_nanoseconds: u32,
    #[prost(sint64, tag = "4")]
    pub changed_seconds: i64,
    #[prost(uint32, tag = "5")]
    pub changed_nanoseconds: u32,
    #[prost(uint64, tag = "6")]
    pub inode: u64,
    /// False: any version will do.
    #[prost(bool, tag = "7")]
    pub is_known: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Records {
    #[prost(uint32, tag = "1")]
    pub number: u32,
    #[prost(message, repeated, tag = "2")]
    pub records: Vec<FileRecord>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct FileRecord {
    /// Which of the question's paths, from 0.
    #[prost(uint32, tag = "1")]
    pub asked: u32,
    /// Below that path; empty for the object itself.
    #[prost(bytes = "vec", tag = "2")]
    pub path: Vec<u8>,
    /// 1 directory, 2 file, 3 symbolic link, 4 FIFO, 5 socket, 6 character device, 7 block device, 8 unknown, 9 sums over
    /// a directory, 10 a failure.
    #[prost(uint32, tag = "3")]
    pub kind: u32,
    #[prost(uint32, tag = "4")]
    pub mode: u32,
    #[prost(uint64, tag = "5")]
    pub size_bytes: u64,
    #[prost(uint64, tag = "6")]
    pub allocated_bytes: u64,
    #[prost(uint32, tag = "7")]
    pub owner: u32,
    #[prost(uint32, tag = "8")]
    pub group: u32,
    #[prost(uint64, tag = "9")]
    pub links: u64,
    #[prost(uint64, tag = "10")]
    pub inode: u64,
    #[prost(uint64, tag = "11")]
    pub device: u64,
    #[prost(sint64, tag = "12")]
    pub modified_seconds: i64,
    #[prost(uint32, tag = "13")]
    pub modified_nanoseconds: u32,
    #[prost(sint64, tag = "14")]
    pub changed_seconds: i64,
    #[prost(uint32, tag = "15")]
    pub changed_nanoseconds: u32,
    #[prost(bytes = "vec", tag = "16")]
    pub link: Vec<u8>,
    #[prost(bytes = "vec", tag = "17")]
    pub digest: Vec<u8>,
    /// Number of a `model::FailureKind`.
    #[prost(uint32, tag = "18")]
    pub failure: u32,
    #[prost(string, tag = "19")]
    pub text: String,
    /// Sums over a directory.
    #[prost(uint64, tag = "20")]
    pub files: u64,
    #[prost(uint64, tag = "21")]
    pub directories: u64,
    /// Nothing of its directory follows.
    #[prost(bool, tag = "22")]
    pub is_last: bool,
    #[prost(uint64, tag = "23")]
    pub failed: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Answered {
    #[prost(uint32, tag = "1")]
    pub number: u32,
    /// 0 when it was answered, whatever failed singly.
    #[prost(uint32, tag = "2")]
    pub code: u32,
    #[prost(string, tag = "3")]
    pub text: String,
    /// What was found, made, removed.
    #[prost(uint64, tag = "4")]
    pub files: u64,
    #[prost(uint64, tag = "5")]
    pub directories: u64,
    #[prost(uint64, tag = "6")]
    pub bytes: u64,
    #[prost(uint64, tag = "7")]
    pub allocated_bytes: u64,
    #[prost(uint64, tag = "8")]
    pub failed: u64,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Proceed {
    #[prost(uint32, tag = "1")]
    pub number: u32,
    /// `Records` that may be sent in all, counted from the start of the answer.
    #[prost(uint64, tag = "2")]
    pub batches: u64,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Stop {
    #[prost(uint32, tag = "1")]
    pub number: u32,
}
