"""What kctl's own tests are made with and users' tests may import: real sockets with a script behind them."""
