use scoop::prelude::*;

#[derive(Default)]
struct Report;

#[saga(every = "0s")]
#[subscribes(Tick)]
impl Report {
    #[step]
    async fn write(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
        Ok(())
    }
}

fn main() {}
