use scoop::prelude::*;

#[derive(ContextKey)]
struct TenantId(u32);

fn main() {}
