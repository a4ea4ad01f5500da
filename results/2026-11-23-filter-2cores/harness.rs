//! Asks filters of many rules for paths that none matches; see README.md.
#[path="GLOB"] mod glob;
#[path="FILTER"] mod filter;
use filter::*;
use std::time::Instant;
fn main(){
 let kinds:[(&str,Box<dyn Fn(usize)->String>);4]=[
  ("*.extN",Box::new(|i|format!("*.ext{i}"))),("nameN",Box::new(|i|format!("name{i}"))),("/dirN/*",Box::new(|i|format!("/dir{i}/*"))),("cacheN*",Box::new(|i|format!("cache{i}*")))];
 let paths:Vec<Vec<u8>>=(0..100_000).map(|i|format!("tree/d{}/file-{:06}.dat",i/500,i).into_bytes()).collect();
 for (n,k) in &kinds { for rules in [1usize,16,1024] {
  let f=Filter::new((0..rules).map(|i|Rule::leave(&k(i))).collect()).unwrap();
  let mut best=f64::MAX; let mut hits=0;
  for _ in 0..5 { let t=Instant::now(); hits=0; for p in &paths { if f.word(p,false)==Word::Leave {hits+=1;} } best=best.min(t.elapsed().as_secs_f64()); }
  println!("{n} rules {rules}: {:.0} ns a path, {hits} hits",best*1e9/paths.len() as f64);
 }}
}
