use scoop::prelude::*;

#[derive(Default)]
struct Report;

#[saga(name = "reports", was = "nightly", every = "1h")]
#[subscribes(Tick)]
impl Report {
    #[step]
    async fn write(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
        Ok(())
    }
}

fn main() {}
