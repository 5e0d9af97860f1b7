#![allow(unused)]
include!("../orders.rs");

mod key_wrong {
    use super::*;

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
}

mod repeated {
    use super::*;

    #[derive(ContextKey, Serialize, Deserialize)]
    #[context(key = "one", key = "two")]
    #[context(key = "three")]
    struct TenantId(u32);
}

mod unknown_key {
    use super::*;

    #[derive(ContextKey, Serialize, Deserialize)]
    #[context(name = "tenant")]
    struct TenantId(u32);
}

fn main() {}
