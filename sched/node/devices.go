package node

// DeviceLeft returns the free part of all devices, in thousandths of a device.
func (c *Config) DeviceLeft(free []int64) int64 {
	left := int64(0)
	for i := range c.Groups {
		g := &c.Groups[i]
		if g.Devices == 0 {
			continue
		}
		if g.ShareDim == 0 {
			left += max(0, free[g.Dim]) * 1000
			continue
		}
		for _, x := range free[g.ShareDim : g.ShareDim+g.Devices] {
			left += max(0, x) * 1000 / g.Shares
		}
	}
	return left
}

// TooSmall returns the free part of devices that cannot give shares of theirs; shares 0 is a whole device.
func (c *Config) TooSmall(free []int64, shares int64) int64 {
	sum := int64(0)
	for i := range c.Groups {
		g := &c.Groups[i]
		if g.Devices == 0 || g.ShareDim == 0 {
			continue
		}
		need := shares
		if need == 0 {
			need = g.Shares
		}
		for _, x := range free[g.ShareDim : g.ShareDim+g.Devices] {
			if x < need {
				sum += max(0, x) * 1000 / g.Shares
			}
		}
	}
	return sum
}

// TakeWhole takes whole devices from free.
func (c *Config) TakeWhole(free []int64, need *GresNeed) {
	left := need.Count
	for _, gi := range need.Groups {
		g := &c.Groups[gi]
		if g.ShareDim == 0 {
			k := min(left, max(0, free[g.Dim]))
			free[g.Dim] -= k
			left -= k
			continue
		}
		for d := g.ShareDim; d < g.ShareDim+g.Devices && left > 0; d++ {
			if free[d] == g.Shares {
				free[d] = 0
				left--
			}
		}
	}
}
