package gpu

import "testing"

func TestTypes(t *testing.T) {
	for _, c := range []struct{ model, short, long string }{
		{"NVIDIA A100-SXM4-40GB", "a100", "nvidia_a100-sxm4-40gb"},
		{"Mock NVIDIA A100-SXM4-40GB", "a100", "mock_nvidia_a100-sxm4-40gb"},
		{"NVIDIA A100 80GB PCIe", "a100", "nvidia_a100_80gb_pcie"},
		{"NVIDIA H100 80GB HBM3", "h100", "nvidia_h100_80gb_hbm3"},
		{"NVIDIA H100 NVL", "h100", "nvidia_h100_nvl"},
		{"NVIDIA H200", "h200", "nvidia_h200"},
		{"NVIDIA GH200 480GB", "gh200", "nvidia_gh200_480gb"},
		{"NVIDIA B200 180GB HBM3e", "b200", "nvidia_b200_180gb_hbm3e"},
		{"Tesla V100-SXM2-16GB", "v100", "tesla_v100-sxm2-16gb"},
		{"Tesla P100-PCIE-16GB", "p100", "tesla_p100-pcie-16gb"},
		{"Tesla T4", "t4", "tesla_t4"},
		{"Tesla K80", "k80", "tesla_k80"},
		{"NVIDIA TITAN Xp", "titan_xp", "nvidia_titan_xp"},
		{"TITAN V", "titan_v", "titan_v"},
		{"NVIDIA TITAN RTX", "titan_rtx", "nvidia_titan_rtx"},
		{"NVIDIA GeForce RTX 3090", "rtx_3090", "nvidia_geforce_rtx_3090"},
		{"NVIDIA GeForce GTX 1080 Ti", "gtx_1080_ti", "nvidia_geforce_gtx_1080_ti"},
		{"NVIDIA GeForce RTX 4090 Laptop GPU", "rtx_4090_laptop", "nvidia_geforce_rtx_4090_laptop_gpu"},
		{"NVIDIA RTX A6000", "rtx_a6000", "nvidia_rtx_a6000"},
		{"NVIDIA RTX 6000 Ada Generation", "rtx_6000_ada", "nvidia_rtx_6000_ada_generation"},
		{"Quadro RTX 8000", "quadro_rtx_8000", "quadro_rtx_8000"},
		{"NVIDIA L40S", "l40s", "nvidia_l40s"},
		{"NVIDIA A10G", "a10g", "nvidia_a10g"},
		{"NVIDIA", "nvidia", "nvidia"},
		{"Strange:GPU,1", "strange_gpu_1", "strange:gpu,1"},
	} {
		if got := ShortType(c.model); got != c.short {
			t.Errorf("%q is %q, want %q", c.model, got, c.short)
		}
		if got := LongType(c.model); got != c.long {
			t.Errorf("%q is %q in full, want %q", c.model, got, c.long)
		}
		for _, typ := range []string{c.short, c.long, c.long[:len(c.long)-1]} {
			if !TypeMatches(typ, c.model) {
				t.Errorf("%q is not %q", c.model, typ)
			}
		}
	}
	for _, no := range []string{"", "h100", "a100-pcie", "a1000"} {
		if TypeMatches(no, "NVIDIA A100-SXM4-40GB") {
			t.Errorf("%q matches", no)
		}
	}
}
