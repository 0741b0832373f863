//! Walks the batches of a log of format v2: `rust_reader checksums|records FILE PASSES`.
//!
//! `checksums` validates the header, the length and the CRC of each batch, `records` also decompresses each body and walks its records.
//! Both map the file for each pass. Prints one JSON line for each pass: {"seconds": …, "batches": …, "records": …, "bytes": …}.

use std::{env, error::Error, fs::File, time::Instant};

use krabka_compression::RecordDecompressionPolicy;
use krabka_protocol::records::validate_one_v2_batch;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().collect();
    let [_, mode, path, passes] = arguments.as_slice() else {
        return Err("usage: rust_reader checksums|records FILE PASSES".into());
    };
    let with_records = mode == "records";
    for _ in 0..passes.parse()? {
        let start = Instant::now();
        let file = File::open(path)?;
        // SAFETY: nobody writes to a corpus while it is raced.
        let map = unsafe { memmap2::Mmap::map(&file)? };
        let (mut rest, mut batches, mut records) = (&map[..], 0_u64, 0_u64);
        while !rest.is_empty() {
            let batch = validate_one_v2_batch(rest)?;
            if with_records {
                batch.validate_record_summaries_with(RecordDecompressionPolicy::default(), |_| records += 1)?;
            }
            batches += 1;
            rest = &rest[batch.total_len..];
        }
        let bytes = map.len();
        drop(map);
        let seconds = start.elapsed().as_secs_f64();
        println!("{{\"seconds\": {seconds}, \"batches\": {batches}, \"records\": {records}, \"bytes\": {bytes}}}");
    }
    Ok(())
}
