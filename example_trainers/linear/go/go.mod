module linear

go 1.19
