use scoop::prelude::*;

#[derive(ContextKey)]
struct TenantId<T>(T);

#[derive(ContextKey)]
union Bits {
    one: u32,
    other: f32,
}

fn main() {}
