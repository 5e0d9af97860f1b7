use scoop::prelude::*;

#[derive(ContextKey, Serialize, Deserialize)]
#[context(key = "one", key = "two")]
#[context(key = "three")]
struct TenantId(u32);

fn main() {}
