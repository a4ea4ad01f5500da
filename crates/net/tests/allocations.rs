//! An established stream moves blocks without touching the heap.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::mpsc;
use std::thread;

mod support;
use support::data_streams;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on unchanged to the system's allocator, which upholds the contract; the counter is a
// thread-local without a destructor and does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; `pointer` came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn moving_blocks_allocates_nothing() {
    let (mut near, mut far) = data_streams();
    let (sent, is_sent) = mpsc::channel();
    let receiving = thread::spawn(move || {
        let (mut header, mut block) = ([0; 32], vec![0; 128 * 1024]);
        far.recv_exact(&mut header).unwrap();
        let before = ALLOCATIONS.with(Cell::get);
        for _ in 0..64 {
            far.recv_exact(&mut block).unwrap();
            far.recv_exact(&mut header).unwrap();
        }
        assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0, "the receiver");
        sent.send(()).unwrap();
    });
    let (header, block) = ([0; 32], vec![0; 128 * 1024]);
    near.send(&[&header]).unwrap();
    let before = ALLOCATIONS.with(Cell::get);
    for _ in 0..64 {
        near.send(&[&block, &header]).unwrap();
    }
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0, "the sender");
    is_sent.recv().unwrap();
    receiving.join().unwrap();
}
