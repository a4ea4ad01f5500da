//! The fake store as a server of its own, for measurements: `s3 KEYS PER_DIRECTORY MILLISECONDS [EVERY [BYTES]]` holds so many small
//! objects below `a/`, answers each request after so long, and says where it is. Of EVERY requests one is refused or cut, in five ways
//! in turn; 0 has none go wrong. With BYTES each object is so many zeros, and of what is written only the length is kept: what a client
//! takes of a processor is measured beside a store that takes little. So are s5cmd and boto3 with the AWS CRT client.

use fakes::Fault;
use std::time::Duration;

const FAULTS: &[Fault] = &[Fault::Status(503), Fault::Cut, Fault::Status(500), Fault::LostAnswer, Fault::AtOnce];

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>().expect("a number"));
    let [keys, per_directory, milliseconds] =
        [(); 3].map(|()| numbers.next().expect("KEYS PER_DIRECTORY MILLISECONDS"));
    let every = numbers.next().filter(|every| *every > 0);
    let zeros = numbers.next();
    let fake = fakes::Fake::start();
    {
        let mut state = fake.state.lock().unwrap();
        state.forgets_requests = true;
        state.delay = Duration::from_millis(milliseconds);
        state.faulty = every.map(|every| (every, FAULTS));
        state.is_null = zeros.is_some();
        for number in 0..keys {
            let key = format!("a/d{:06}/f{:07}", number / per_directory, number % per_directory);
            let meta = vec![("x-amz-meta-mtime".to_owned(), "1600000000.5".to_owned())];
            match zeros {
                Some(zeros) => state.put_zeros(&key, zeros as usize, meta),
                None => state.put(&key, vec![b'x'; 8], meta),
            };
        }
    }
    println!("{}", fake.url);
    loop {
        std::thread::park();
    }
}
