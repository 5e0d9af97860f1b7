//! Writes the thousand sagas of B11 if the feature is on: sagas are types, and the attribute takes no
//! parameters.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let count = if env::var_os("CARGO_FEATURE_THOUSAND").is_some() { 1000 } else { 0 };
    let mut sagas = String::new();
    let mut chosen = String::new();
    for n in 0..count {
        let saga = format!(
            "#[derive(Message, Serialize, Deserialize)] #[message(topic = \"idle.{n}\")] struct Message{n};\n\
             #[derive(Default)] struct Idle{n};\n\
             #[saga] #[subscribes(Message{n})] impl Idle{n} {{\n\
             #[step] async fn only(&self, _: &mut Scope<'_>, _: &Message{n}) -> Result<()> {{ Ok(()) }} }}\n"
        );
        sagas.push_str(&saga);
        let _ = write!(chosen, ".only::<Idle{n}>()");
    }
    let all =
        format!("{sagas}\nfn chosen(builder: scoop::Builder) -> scoop::Builder {{ builder{chosen} }}\n");
    let folder = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo sets OUT_DIR"))?;
    fs::write(Path::new(&folder).join("thousand.rs"), all)
}
