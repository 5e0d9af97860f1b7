//! A saga that is `Default` is made from nothing; any other must be provided.
#![deny(warnings)]

use scoop::__private::{NotDefault as _, Probe};
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
enum Tick {
    Tock,
}

#[derive(Default)]
struct FromNothing;

#[saga]
#[subscribes(Tick)]
impl FromNothing {
    #[step]
    async fn run(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
        Ok(())
    }
}

struct Provided(Vec<Tick>);

#[saga]
#[subscribes(Tick)]
impl Provided {
    #[step]
    async fn run(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
        println!("{}", self.0.len());
        Ok(())
    }
}

pub(crate) fn main() {
    assert!(Probe::<FromNothing>::new().instance().is_some());
    assert!(Probe::<Provided>::new().instance().is_none());
    let _ = Provided(vec![Tick::Tock]);

    let registered = scoop::__private::inventory::iter::<scoop::__private::Registration>;
    let sagas = registered.into_iter().map(|registered| registered.definition().saga);
    let mut sagas: Vec<_> = sagas.filter(|saga| ["from-nothing", "provided"].contains(&&**saga)).collect();
    sagas.sort();
    assert_eq!(sagas, ["from-nothing", "provided"]);
}
