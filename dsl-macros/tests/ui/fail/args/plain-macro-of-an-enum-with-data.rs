fusewire::device::plain! {
    pub enum Mode {
        Add,
        Scale(f32),
    }
}

fn main() {}
