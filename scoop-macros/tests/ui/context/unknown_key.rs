use scoop::prelude::*;

#[derive(ContextKey, Serialize, Deserialize)]
#[context(name = "tenant")]
struct TenantId(u32);

fn main() {}
