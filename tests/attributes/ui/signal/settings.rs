use scoop::prelude::*;

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "")]
struct Empty;

#[derive(Signal, Serialize, Deserialize)]
#[signal(retention = "a week")]
struct NoDuration;

#[derive(Signal, Serialize, Deserialize)]
#[signal(key = "order")]
struct UnknownKey;

#[derive(Signal)]
struct Generic<T>(T);

#[derive(Signal)]
union Bits {
    one: u32,
    other: f32,
}

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "sssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssss")]
struct TooLong;

fn main() {}
