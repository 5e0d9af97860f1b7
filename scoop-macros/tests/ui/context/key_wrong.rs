use scoop::prelude::*;

#[derive(ContextKey, Serialize, Deserialize)]
#[context(key = "")]
struct Empty;

#[derive(ContextKey, Serialize, Deserialize)]
#[context(key = "a\0b")]
struct Nul;

#[derive(ContextKey, Serialize, Deserialize)]
#[context(key = 5)]
struct Number;

#[derive(ContextKey, Serialize, Deserialize)]
#[context = "tenant"]
struct NoList;

#[derive(ContextKey, Serialize, Deserialize)]
#[context(
    key = "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
)]
struct Long;

fn main() {}
